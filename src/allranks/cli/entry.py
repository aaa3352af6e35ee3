"""The program `allranks`: Ctrl-C prints no stack trace, even during imports."""

import sys


def main() -> int:
    """Run the command line. Returns the exit code."""
    try:
        from allranks.cli import main as command_line  # lazy: may be interrupted

        return command_line.main()
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
