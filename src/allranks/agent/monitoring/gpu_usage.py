"""The load of a node's GPUs, from NVIDIA's library; without the library, none."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from itertools import takewhile
from typing import Any

# Part of the driver.
_LIBRARY = "libnvidia-ml.so.1"


class Gpus:
    """The GPUs allocated to the job, or all of the node. No method raises."""

    def __init__(self) -> None:
        self._devices: list[tuple[int, Any]] = []
        self._nvml: Any = None
        visible = _visible(os.environ.get("CUDA_VISIBLE_DEVICES"))
        if visible is not None and not visible:
            return  # the job has none, and loading the library takes a while
        try:
            ctypes.CDLL(_LIBRARY)  # first, because nodes without it need not import pynvml
            import pynvml  # lazy: 30 ms

            pynvml.nvmlInit()
            count = pynvml.nvmlDeviceGetCount()
            self._nvml = pynvml
            every = [(index, pynvml.nvmlDeviceGetHandleByIndex(index)) for index in range(count)]
            self._devices = [device for device in every if visible is None or device[0] in visible]
        except Exception:  # no driver, a broken one, or no package
            self._devices = []

    def look(self) -> dict[int, dict[str, float]]:
        """Return the available values of each GPU: percent, bytes, watts, degrees Celsius."""
        return {index: self._values(handle) for index, handle in self._devices}

    def _values(self, handle: Any) -> dict[str, float]:
        nvml, values = self._nvml, {}
        queries: dict[str, Callable[[], Any]] = {
            "gpu_load": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
            "gpu_memory": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used,
            "gpu_memory_total": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).total,
            "gpu_power": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
            "gpu_power_limit": lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000,
            "gpu_temperature": lambda: nvml.nvmlDeviceGetTemperature(handle, 0),
        }
        for name, query in queries.items():
            try:
                values[name] = float(query())
            except Exception:  # MIG slices report no load, some GPUs no power
                continue
        return values


def _visible(visible: str | None) -> set[int] | None:
    """The numbers in CUDA_VISIBLE_DEVICES up to the first invalid one, as CUDA reads it. None if it
    is not set or has UUIDs."""
    if visible is None or "GPU-" in visible or "MIG-" in visible:
        return None
    words = (word.strip() for word in visible.split(","))
    return {int(word) for word in takewhile(str.isdigit, words)}
