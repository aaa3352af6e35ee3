"""Images as archives that containerd imports, made without a registry."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping
from pathlib import Path

from tests.containers import image

PAUSE = "localhost/pause:1"
TRAINER = "localhost/trainer:1"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def write_pause(goal: Path, program: Path, name: str = PAUSE) -> None:
    """What holds a pod's namespaces: one static program, and nothing beside it."""
    layer = goal.with_suffix(".layer")
    with tarfile.open(layer, "w") as tar:
        tar.add(program, "pause")
    write_archive(goal, name, layer, {"Entrypoint": ["/pause"]})


def write_foreign(goal: Path, program: Path, name: str) -> None:
    """What ``program`` is, as if it were built for another architecture."""
    content = bytearray(program.read_bytes())
    content[18:20] = (8).to_bytes(2, "little")  # the machine in an ELF file's head: MIPS
    changed = goal.with_suffix(".program")
    changed.write_bytes(content)
    changed.chmod(0o755)
    write_pause(goal, changed, name)
    changed.unlink()


def write_trainer(goal: Path) -> None:
    """The image of the containers' tests: bash, a few programs, this Python."""
    layer = goal.with_suffix(".layer")
    image.write(layer)
    path = f"PATH={image.PYTHON}:/usr/bin:/bin"
    write_archive(goal, TRAINER, layer, {"Env": [path, "FROM_IMAGE=yes"], "Cmd": ["bash"]})


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
