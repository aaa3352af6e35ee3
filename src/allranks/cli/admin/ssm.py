"""`allranks ssm …`: run a line of simple-sagemaker."""

from __future__ import annotations

import argparse

from allranks.cli.parser import Parser


def ssm_options(parser: Parser) -> None:
    parser.is_for_another = True
    what = "run, shell, process or data, and the options of simple-sagemaker"
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="run|shell|… …", help=what)


def ssm(options: argparse.Namespace) -> int:
    """Run the line; exits with 0 only if the task is completed."""
    from allranks.compat.ssm.run_line import run  # lazy: the SDK

    return run(options.words[1:])  # behind `--`
