"""What engines start on each node, `python -P -m allranks.agent`, told by environment."""

from __future__ import annotations

import os
import sys

from allranks.agent.processes.keeper import keep


def main() -> int:
    """The agent's whole life, below its keeper; the exit code of whichever of them returns."""
    code = keep()
    if code is not None:
        return code
    # lazy: the keeper, already split off, stays small
    from allranks.agent.lifecycle.main import run

    return run()


if __name__ == "__main__":
    ended = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Taking the interpreter apart is a third of a short job's time here, and of no use to anyone.
    os._exit(ended)
