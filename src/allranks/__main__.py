"""``python -m allranks`` is the command ``allranks``."""

from allranks.cli.entry import main

if __name__ == "__main__":
    main()
