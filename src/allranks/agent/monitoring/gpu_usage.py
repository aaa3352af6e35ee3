"""The GPUs of a node and what they do, as NVIDIA's library tells; none where it is not there."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from itertools import takewhile
from typing import Any

# What the driver brings along.
_LIBRARY = "libnvidia-ml.so.1"


class Gpus:
    """Those that the job was given, or all of the node. Nothing of it raises."""

    def __init__(self) -> None:
        self._devices: list[tuple[int, Any]] = []
        self._nvml: Any = None
        try:
            ctypes.CDLL(_LIBRARY)  # looked for first: most nodes without it need not import more
            import pynvml  # lazy: 30 ms

            pynvml.nvmlInit()
            count = pynvml.nvmlDeviceGetCount()
            self._nvml = pynvml
            every = [(index, pynvml.nvmlDeviceGetHandleByIndex(index)) for index in range(count)]
            mine = _given(os.environ.get("CUDA_VISIBLE_DEVICES"))
            self._devices = [each for each in every if mine is None or each[0] in mine]
        except Exception:  # no driver, one that is broken, no package: nothing to be told
            self._devices = []

    def look(self) -> dict[int, dict[str, float]]:
        """By the GPU's number: percent, bytes, watts, degrees Celsius; without what it does not
        tell."""
        return {index: self._one(handle) for index, handle in self._devices}

    def _one(self, handle: Any) -> dict[str, float]:
        nvml, found = self._nvml, {}
        ask: dict[str, Callable[[], Any]] = {
            "gpu_load": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
            "gpu_memory": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used,
            "gpu_memory_total": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).total,
            "gpu_power": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
            "gpu_power_limit": lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000,
            "gpu_temperature": lambda: nvml.nvmlDeviceGetTemperature(handle, 0),
        }
        for name, question in ask.items():
            try:
                found[name] = float(question())
            except Exception:  # a slice of a GPU tells no load, some tell no power
                continue
        return found


def _given(visible: str | None) -> set[int] | None:
    """The numbers in CUDA_VISIBLE_DEVICES, up to what is none, as CUDA reads it: empty text is no
    GPU. None where it is not set, or has their names."""
    if visible is None or "GPU-" in visible or "MIG-" in visible:
        return None
    words = (word.strip() for word in visible.split(","))
    return {int(word) for word in takewhile(str.isdigit, words)}
