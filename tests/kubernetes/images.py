"""Images as archives that containerd imports, made without a registry."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import allranks
from tests.containers import image

PAUSE = "localhost/pause:1"
TRAINER = "localhost/trainer:1"
SERVER = "localhost/allranks:1"
SOURCE = Path(allranks.__file__).parent
_COMMAND = """\
#!/usr/bin/env python3
import sys
from allranks.cli.main import main
sys.exit(main())
"""
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def write_pause(goal: Path, program: Path, name: str = PAUSE) -> None:
    """What holds a pod's namespaces: one static program, and nothing beside it."""
    layer = goal.with_suffix(".layer")
    with tarfile.open(layer, "w") as tar:
        tar.add(program, "pause")
    write_archive(goal, name, layer, {"Entrypoint": ["/pause"]})


def write_foreign(goal: Path, program: Path, name: str, inside: str = "pause") -> None:
    """What ``program`` is, as if it were built for another architecture, at the path ``inside``."""
    content = bytearray(program.read_bytes())
    content[18:20] = (8).to_bytes(2, "little")  # the machine in an ELF file's head: MIPS
    layer, changed = goal.with_suffix(".layer"), goal.with_suffix(".program")
    changed.write_bytes(content)
    changed.chmod(0o755)
    with tarfile.open(layer, "w") as tar:
        tar.add(changed, inside)
    write_archive(goal, name, layer, {"Entrypoint": [f"/{inside}"]})
    changed.unlink()


def write_trainer(goal: Path) -> None:
    """The image of the containers' tests: bash, a few programs, this Python."""
    layer = goal.with_suffix(".layer")
    image.write(layer)
    path = f"PATH={image.PYTHON}:/usr/bin:/bin"
    write_archive(goal, TRAINER, layer, {"Env": [path, "FROM_IMAGE=yes"], "Cmd": ["bash"]})


def write_without_python(goal: Path, name: str) -> None:
    """Bash, a few programs, and the libraries that nearly every image has."""
    layer = goal.with_suffix(".layer")
    image.write(layer, python=False)
    write_archive(goal, name, layer, {"Env": ["PATH=/usr/bin:/bin"], "Cmd": ["bash"]})


def write_server(goal: Path) -> None:
    """Allranks with all that its server imports, of the extras kubernetes and postgres."""
    layer, packages = goal.with_suffix(".layer"), "opt/packages"
    image.write(layer)
    with tarfile.open(layer, "a") as tar:
        for package in _needed("allranks[kubernetes,postgres]"):
            for file in package.files or ():
                path = Path(str(package.locate_file(file)))
                if ".." not in file.parts and file.suffix != ".pyc" and path.is_file():
                    tar.add(path, f"{packages}/{file}")
        tar.add(SOURCE, f"{packages}/allranks", filter=_without_caches)
        _add_text(tar, f"{image.PYTHON[1:]}/allranks", _COMMAND, 0o755)
    env = [f"PATH={image.PYTHON}:/usr/bin:/bin", f"PYTHONPATH=/{packages}"]
    write_archive(goal, SERVER, layer, {"Env": env, "Cmd": ["bash"]})


def _needed(name: str) -> list[Distribution]:
    """The installed packages that a requirement leads to, its own among them."""
    found: dict[str, Distribution] = {}
    waiting = [Requirement(name)]
    while waiting:
        asked = waiting.pop()
        for text in distribution(asked.name).requires or ():
            more = Requirement(text)
            extras = asked.extras or {""}
            wanted = more.marker is None or any(more.marker.evaluate({"extra": e}) for e in extras)
            if wanted and (more.extras or canonicalize_name(more.name) not in found):
                waiting.append(more)
        found[canonicalize_name(asked.name)] = distribution(asked.name)
    return [*found.values()]


def _without_caches(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if "__pycache__" in entry.name else entry


def _add_text(tar: tarfile.TarFile, name: str, text: str, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(text.encode()), mode
    tar.addfile(entry, io.BytesIO(text.encode()))


def write_archive(goal: Path, name: str, layer: Path, config: Mapping[str, object]) -> None:
    """An archive as `docker save` writes it, of one layer; the layer's file is consumed."""
    digest = hashlib.sha256(layer.read_bytes()).hexdigest()
    described = {
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(goal, "w") as tar:
        for inside, content in (("config.json", described), ("manifest.json", manifest)):
            text = json.dumps(content).encode()
            entry = tarfile.TarInfo(inside)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text))
        tar.add(layer, "layer.tar")
    layer.unlink()


def push(archive: Path, folder: Path) -> None:
    """Lay an archive out as `tests.containers.registry` serves it."""
    parts: dict[str, bytes] = {}
    with tarfile.open(archive) as tar:
        for inside in ("config.json", "layer.tar"):
            member = tar.extractfile(inside)
            assert member is not None
            parts[inside] = member.read()
    kinds = {"config.json": "config.v1+json", "layer.tar": "layer.v1.tar"}
    described = {}
    for inside, content in parts.items():
        digest = hashlib.sha256(content).hexdigest()
        (folder / digest).write_bytes(content)
        kind = f"application/vnd.oci.image.{kinds[inside]}"
        described[inside] = {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": described["config.json"],
        "layers": [described["layer.tar"]],
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
