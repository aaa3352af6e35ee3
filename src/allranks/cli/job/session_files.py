"""The files of a session on its nodes: run `allranks_dev_files` there."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import IO, Any

from allranks.agent.inside import allranks_dev_files
from allranks.channel import Frame
from allranks.core.data.working_set import COLLECTED
from allranks.errors import AllranksError
from allranks.sdk.jobs.channel import Channel, Follower

_THERE = Path(allranks_dev_files.__file__)
# Python of the rank's environment.
_RUN = """\
for program in python3 python; do
    command -v "$program" >/dev/null && exec "$program" -I -S -c "$1" "$2"
done
echo "the session's environment has no Python" >&2
exit 127"""
# Folders that never go from one place to another.
SKIPPED = (".git", "__pycache__")
# Bytes: a larger file is no code.
_CODE = 16 << 20
# Bytes of output that are kept.
_MOST = 256 << 20


def run_there(
    name: str, mode: str, request: Any, out: IO[bytes] | None = None, node: int = 0
) -> bytes:
    """Run it on a node of the session. ``request`` is a file, or data for JSON. Returns the output,
    unless that goes to ``out``. Raises AllranksError."""
    output, errors = bytearray(), bytearray()

    def take(kind: Frame, data: bytes) -> None:
        if kind is Frame.ERR:
            errors.extend(data[-4096:])
            del errors[:-4096]
        elif kind is Frame.OUT and out is not None:
            out.write(data)
        elif kind is Frame.OUT:
            output.extend(data)
        if len(output) > _MOST:
            raise AllranksError(f"{name} sends too much", hint=f"allranks dev attach {name}")

    words = ["sh", "-c", _RUN, "sh", _THERE.read_text(), mode]
    with tempfile.TemporaryFile() as made:
        source = request if hasattr(request, "fileno") else made
        if source is made:
            made.write(json.dumps(request).encode())
        source.seek(0)
        channel = Channel(name, None, node, command=words)
        code = Follower(channel, take, source.fileno()).run()
    if code:
        lines = errors.decode(errors="replace").strip().splitlines()
        why = lines[-1][:500] if lines else f"it ended with {code}"
        hint = f"look around there: allranks dev attach {name}"
        raise AllranksError(f"no access to the files of {name}: {why}", hint=hint)
    return bytes(output)


def listed_there(name: str, request: Any, node: int = 0) -> tuple[dict[str, str], dict[str, int]]:
    """The session's files on a node, each with what it holds, and the sizes of large ones. Raises
    AllranksError, also if the session says something else."""
    try:
        answer = json.loads(run_there(name, "list", request, node=node))
        files = {str(path): str(what) for path, what in answer["files"].items()}
        return files, {str(path): int(size) for path, size in answer["large"].items()}
    except (ArithmeticError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        hint = f"look around there: allranks dev attach {name}"
        raise AllranksError(f"{name} does not list its files", hint=hint) from None


def spread(name: str, nodes: int) -> int:
    """Bring what was changed on the first node to the others, where each has a folder of its own:
    what is no code by its size stays. Returns the number of files. Raises AllranksError."""
    request = {"sent": [], "most": _CODE, "skipped": SKIPPED}

    def held(node: int) -> dict[str, str]:
        files, _ = listed_there(name, request, node)
        return {path: what for path, what in files.items() if path not in COLLECTED}

    first, changed = held(0), set[str]()
    for node in range(1, nodes):
        there = held(node)
        names = [path for path, what in first.items() if there.get(path) != what]
        if names:
            with tempfile.TemporaryFile() as packed:
                run_there(name, "pack", names, packed)
                run_there(name, "unpack", packed, node=node)
        changed.update(names)
    return len(changed)
