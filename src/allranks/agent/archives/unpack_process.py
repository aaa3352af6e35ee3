"""A worker process that unpacks archives: one JSON request per line of standard input.

It writes JSON messages to standard output, and ends when its parent does.
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

from allranks.agent.archives import read
from allranks.agent.archives.safe_extract import Extraction
from allranks.agent.archives.size_limit import SizeLimit, disk_full
from allranks.agent.processes.keeper import follow_to_death
from allranks.errors import AllranksError
from allranks.tars import broken


def main(parent: int, sharing: int) -> None:
    """Serve requests until standard input closes."""
    follow_to_death(signal.SIGKILL)
    if os.getppid() != parent:
        return  # the parent died before the line above took effect
    for line in sys.stdin:
        request = json.loads(line)
        archive = Path(request["archive"])
        try:
            if request["folder"] is None:
                _answer(done=True, size=read.size(archive))
                continue
            unpack(
                archive,
                Path(request["folder"]),
                limit=request["limit"],
                left=request["left"],
                sharing=sharing,
                report=lambda taken, written: _answer(taken=taken, written=written),
            )
            _answer(done=True)
        except AllranksError as error:
            _answer(error=error.body())
        except OSError as error:
            _answer(error=broken(archive, error.strerror or error).body())


def unpack(
    archive: Path,
    folder: Path,
    *,
    limit: int,
    left: int,
    sharing: int,
    report: Callable[[int, int], None],
) -> None:
    """Unpack one archive in this process; parameters as of `SizeLimit`. Raises AllranksError."""
    size_limit = SizeLimit(archive, folder, limit=limit, left=left, sharing=sharing, report=report)
    name = ""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        extraction = Extraction(archive, folder, size_limit.count_written)
        with contextlib.closing(extraction), read.open_entries(archive) as entries:
            for entry in entries:
                name = entry.name
                size_limit.begin_entry(entry.size, entry.stored)
                extraction.put(entry)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise disk_full(archive, folder) from error
        what = f"{name!r} in {archive.name}" if name else archive.name
        raise AllranksError(
            f"{what} cannot be unpacked: {error.strerror or error}",
            where=str(folder),
            hint="check that the folder is writable and that its disk allows such names",
        ) from error
    size_limit.finish()


def _answer(**message: Any) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
