"""The command that engines start on each node: `python -P -m allranks.agent`, configured by
environment variables."""

from __future__ import annotations

import os
import sys

from allranks import shell_limits
from allranks.agent.processes.keeper import keep


def main() -> int:
    """Run the keeper, and below it the agent. Return the exit code of the process it returns in."""
    shell_limits.apply()
    code = keep()
    if code is not None:
        return code
    # lazy: the keeper does not need it
    from allranks.agent.lifecycle.main import run

    return run()


if __name__ == "__main__":
    exit_code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Skip the interpreter's clean-up: it takes a third of a short job's time.
    os._exit(exit_code)
