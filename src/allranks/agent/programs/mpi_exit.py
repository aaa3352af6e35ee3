"""Runs as every Python of an MPI job starts (`inside/sitecustomize.py` runs it): a rank that fails
does not wait for the others.

mpi4py finalizes MPI as Python exits, and there waits for the other ranks, which wait for this one
in some collective: for ever, under any mpirun, and the job never ends. Here a failed rank leaves
without: mpirun sees it and ends the others. `python -m mpi4py` does as much, for those who know it.

Old Pythons run this, too.
"""

import atexit
import contextlib
import os
import sys
from typing import List, NoReturn  # noqa: UP035  # Python 3.8 has no list[…]

_last_exit: List[SystemExit] = []  # noqa: UP006


def _exit(status: object = None) -> NoReturn:
    """In place of sys.exit: keeps what it raises, to know later whether that ended the program."""
    _last_exit[:] = [SystemExit() if status is None else SystemExit(status)]
    raise _last_exit[0]


def _code() -> int:
    """What this program is about to exit with, as far as that can be known: 0 for success."""
    if getattr(sys, "last_value", None) is not None:  # an exception that nobody caught
        return 1
    if not _last_exit:
        return 0
    traceback, status = _last_exit[0].__traceback__, _last_exit[0].code
    # Where it was caught and the program went on, its outermost frame is not where it left it.
    # Before Python 3.12 one that nobody caught has no traceback at all.
    if traceback is not None and traceback.tb_frame.f_lasti != traceback.tb_lasti:
        return 0
    return status & 0xFF if isinstance(status, int) else int(status is not None)


def _leave() -> None:
    code = _code() if "mpi4py.MPI" in sys.modules else 0
    if code:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # closed, none, or its reader is gone
                stream.flush()
        os._exit(code)


sys.exit = _exit
# The first to be registered is the last to run: all that the script wants done at its end is.
atexit.register(_leave)
