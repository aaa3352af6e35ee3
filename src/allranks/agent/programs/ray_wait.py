"""Run by the job's own Python before a Ray job's command: wait until all its nodes have joined.

A file of its own: it sees the user's `ray`, nothing of ours.
"""

from __future__ import annotations

import os
import sys
import time

PATIENCE = 120.0
# Seconds for the head to say first why it does not start.
GRACE = 1.0


def main(nodes: int) -> int:
    del sys.path[0]  # our own folder, whose modules' names may be the user's, too
    try:
        from ray._raylet import GcsClient  # type: ignore[import-not-found]  # lazy: the user's own
    except ImportError as error:
        time.sleep(GRACE)
        print(f"allranks: the `python` of the job, {sys.executable}: {error}", file=sys.stderr)
        return 1
    until = time.monotonic() + PATIENCE
    joined = 0
    while time.monotonic() < until:
        try:
            infos = GcsClient(address=os.environ["RAY_ADDRESS"]).get_all_node_info()
            joined = sum(node.state == 0 for node in infos.values())
        except Exception:
            # Not up yet: which of Ray's errors says so differs from version to version.
            joined = 0
        if joined >= nodes:
            return 0
        time.sleep(0.1)
    print(f"allranks: {joined} of {nodes} Ray nodes joined in {PATIENCE:g} s", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
