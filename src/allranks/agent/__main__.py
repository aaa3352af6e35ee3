"""What engines start on each node, `python -P -m allranks.agent`, told by environment."""

from __future__ import annotations

import sys

from allranks.agent.keeper import keep


def main() -> int:
    code = keep()
    if code is not None:
        return code
    from allranks.agent.main import run  # lazy: the keeper, already split off, stays small

    return run()


if __name__ == "__main__":
    sys.exit(main())
