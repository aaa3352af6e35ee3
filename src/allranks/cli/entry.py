"""Where `allranks` begins: whatever is being imported, Ctrl-C is no stack trace."""

import sys


def main() -> int:
    """Run the command line; its exit code."""
    try:
        from allranks.cli import main as command_line  # lazy: may be interrupted

        return command_line.main()
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
