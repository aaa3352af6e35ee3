"""What a node has, as a probe sees it: Python, packages, limits, inputs, networks.

Standard library only, for Python 3.7 on: it travels to the nodes with ``probe``.
"""

from __future__ import annotations

import os
import resource
import socket
import sys
from pathlib import Path
from typing import Any

from allranks.agent.network import interfaces
from allranks.agent.probes.wire import error_text


def facts(options: dict[str, Any], address: str, addresses: list[str]) -> dict[str, Any]:
    """What can be said at once."""
    place = Path(options.get("sys_class") or interfaces.SYS_CLASS)
    interface = interfaces.interface(address, addresses, place)
    fabric = interfaces.fabric(place)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return {
        "host": socket.gethostname(),
        "boot": _text("/proc/sys/kernel/random/boot_id"),
        "address": address,
        "python": sys.version.split()[0],
        "executable": sys.executable,
        "cpus": len(os.sched_getaffinity(0)),
        "gpus": len([gpu for gpu in visible.split(",") if gpu]),
        "gpus_there": sum(n.startswith("nvidia") and n[6:].isdigit() for n in os.listdir("/dev")),
        "shm": _size("/dev/shm"),
        "files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "memlock": resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
        "interface": interface and {**interface._asdict(), "cidr": interface.cidr},
        "ports": [[p.name, p.link_layer, p.rate] for p in (fabric.ports if fabric else ())],
        "down": fabric.down if fabric else (),
        "variables": [variable._asdict() for variable in interfaces.explained(interface, fabric)],
        "set": {
            name: os.environ[name]
            for name in sorted(interfaces.variables(interface, fabric))
            if name in os.environ
        },
    }


def looked(options: dict[str, Any]) -> dict[str, Any]:
    """What has to be looked for on disks: inputs, programs, modules, packages."""
    return {
        "paths": {name: _readable(path) for name, path in options["paths"].items()},
        "programs": [name for name in options["programs"] if _program(name)],
        "missing": [name for name in options["modules"] if not _there(name)],
        "packages": _packages(),
    }


def _size(path: str) -> int:
    """Bytes of a file system, 0 when it is not there. (Not by shutil, which brings compressors
    along: on a small machine with many nodes every import counts.)"""
    try:
        status = os.statvfs(path)
    except OSError:
        return 0
    return status.f_blocks * status.f_frsize


def _program(name: str) -> bool:
    folders = [""] if "/" in name else os.environ.get("PATH", os.defpath).split(":")
    paths = [os.path.join(folder, name) for folder in folders]
    return any(os.access(path, os.X_OK) and os.path.isfile(path) for path in paths)


def _readable(path: str) -> str:
    """Empty when it can be read, else why not."""
    try:
        if os.path.isdir(path):
            os.listdir(path)
        else:
            with open(path, "rb") as file:
                file.read(1)
    except OSError as error:
        return error_text(error)
    return ""


def _there(module: str) -> bool:
    import importlib.util  # lazy: only where modules are asked for

    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _packages() -> dict[str, Any]:
    """Distributions of this Python by name, as `pip list` has them; the first on the path counts,
    as when importing."""
    try:
        from importlib import metadata  # lazy: 30 ms; Python 3.7 has none
    except ImportError:
        return {}
    versions: dict[str, Any] = {}
    for package in metadata.distributions():
        # A half-removed package has no name.
        name = package.metadata["Name"]
        if name:
            versions.setdefault(name.lower().replace("_", "-").replace(".", "-"), package.version)
    return versions


def _text(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
