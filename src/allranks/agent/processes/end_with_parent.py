"""Run a command that ends, with all its descendants, when standard input is closed.

For engines whose node is one of their processes, such as an actor, which may be killed without
notice. The kernel then closes the pipe, and the agent gets SIGTERM, a grace period, and SIGKILL.

    python -m allranks.agent.processes.end_with_parent GRACE FOLDER WORD...

It prints the output of WORD..., and at the end a line with a zero byte and the exit code. Then it
removes FOLDER, because its parent may be gone by that time.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading

from allranks import folder_trees
from allranks.agent.processes.keeper import become_subreaper, end_descendants, follow_to_death


def hold(grace: float, argv: list[str]) -> int:
    """Run ``argv`` until it ends, or until the grace period after the end of standard input."""
    become_subreaper()
    held = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        # If this process itself is killed, the kernel ends the child.
        preexec_fn=lambda: follow_to_death(signal.SIGTERM),
        start_new_session=True,
    )
    threading.Thread(target=_end, args=(held, grace), daemon=True).start()
    code = held.wait()
    end_descendants()
    return code


def _end(held: subprocess.Popen[bytes], grace: float) -> None:
    while os.read(0, 4096):
        pass
    held.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        held.wait(grace)
    # Its descendants become ours, and `hold` ends them.
    held.kill()


def main() -> None:
    grace, folder, *argv = sys.argv[1:]
    # Ray kills the children of a worker that ends, and its process group: be neither.
    if os.fork():
        os._exit(0)
    os.setsid()
    try:
        code = hold(float(grace), argv)
    except OSError as error:
        os.write(1, f"{argv[0]} cannot be started: {error.strerror}\n".encode())
        code = 127
    folder_trees.remove(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        os.write(1, b"\0%d\n" % code)
    os._exit(0)


if __name__ == "__main__":
    main()
