"""A process that unpacks one archive after the other, asked line by line on its standard input.

It ends with who started it. Its answers, on standard output, are JSON as the questions are.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from allranks.agent.archives import formats, read
from allranks.agent.archives.safe_extract import Extraction
from allranks.agent.archives.size_limit import SizeLimit, full
from allranks.agent.processes.keeper import follow_to_death
from allranks.errors import AllranksError

_FULL = (errno.ENOSPC, errno.EDQUOT)


def main(parent: int, sharing: int) -> None:
    """Answer until nobody asks any more."""
    follow_to_death(signal.SIGKILL)
    if os.getppid() != parent:
        return  # it died before the line above took effect
    for line in sys.stdin:
        asked = json.loads(line)
        archive = Path(asked["archive"])
        try:
            if asked["folder"] is None:
                _answer(done=True, size=read.size(archive))
                continue
            unpack(
                archive,
                Path(asked["folder"]),
                limit=asked["limit"],
                left=asked["left"],
                sharing=sharing,
                report=lambda taken, written: _answer(taken=taken, written=written),
            )
            _answer(done=True)
        except AllranksError as error:
            _answer(error=error.body())
        except OSError as error:
            _answer(error=formats.broken(archive, error.strerror or error).body())


def unpack(
    archive: Path,
    folder: Path,
    *,
    limit: int,
    left: int,
    sharing: int,
    report: Callable[[int, int], None],
) -> None:
    """Unpack one archive in this process, as `Allowance` allows it. Raises AllranksError."""
    allowance = SizeLimit(archive, folder, limit=limit, left=left, sharing=sharing, report=report)
    name = ""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        landing = Extraction(archive, folder, allowance.wrote)
        with contextlib.closing(landing), read.opened(archive) as entries:
            for entry in entries:
                name = entry.name
                allowance.begins(entry.size, entry.stored)
                landing.put(entry)
    except OSError as error:
        if error.errno in _FULL:
            raise full(archive, folder) from error
        what = f"{name!r} in {archive.name}" if name else archive.name
        raise AllranksError(
            f"{what} cannot be unpacked: {error.strerror or error}",
            where=str(folder),
            hint="can that folder be written, and does its disk allow such names?",
        ) from error
    allowance.ends()


def _answer(**words: Any) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
