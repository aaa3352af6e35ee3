"""`allranks completion`: print argcomplete's script for a shell.

At each TAB the script runs `allranks` with the line in the environment; `complete_words` answers.
"""

from __future__ import annotations

import argparse

_EPILOG = """\
bash: add this line to ~/.bashrc
  eval "$(allranks completion bash)"

zsh: add this line to ~/.zshrc
  eval "$(allranks completion zsh)"

fish: run this once
  allranks completion fish > ~/.config/fish/completions/allranks.fish
"""


def completion_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=["bash", "zsh", "fish"], help="your shell")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG


def completion(options: argparse.Namespace) -> int:
    from argcomplete.shell_integration import (
        shellcode,
    )  # lazy: `allranks completion --help` needs none of it

    print(shellcode(["allranks"], shell=options.shell))
    return 0
