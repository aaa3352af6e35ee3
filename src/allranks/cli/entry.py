"""The program `allranks`: Ctrl-C prints no stack trace, even during imports."""

import os
import sys


def main() -> None:
    """Run the command line, and end this process with its exit code."""
    try:
        from allranks.cli import main as command_line  # lazy: may be interrupted

        code = command_line.main()
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        code = 130
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError, KeyboardInterrupt):  # the reader has gone, or the user goes
            continue
    # Skip the interpreter's clean-up: it takes a twentieth of a short job's time.
    os._exit(code)
