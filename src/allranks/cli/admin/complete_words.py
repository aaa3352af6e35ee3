"""Answer a shell at a TAB: argcomplete, with the parser of one command and the names in a home.

Names are read from the home's database without starting a server.
"""

from __future__ import annotations

import argparse
import glob
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from argcomplete.finders import ExclusiveCompletionFinder
from argcomplete.lexers import split_line

from allranks import settings
from allranks.api import routes
from allranks.cli.commands import COMMANDS, groups, in_group, split_command
from allranks.cli.job_names import JobReference, OneOfSeveral
from allranks.cli.parser import parser_of
from allranks.settings import Home
from allranks.store import names

# Values of options whose parser has no choices.
_CHOICES: Mapping[tuple[str, str], str] = {
    ("run", "distribution"): "pytorch tensorflow mpi deepspeed horovod jax ray none",
    ("compute create", "tier"): "dedicated low_priority",
    ("compute update", "tier"): "dedicated low_priority",
    ("environment export", "format"): "requirements yaml",
    ("data create", "type"): "uri_file uri_folder mltable",
    ("model register", "type"): "custom_model mlflow_model triton_model",
    ("model create", "type"): "custom_model mlflow_model triton_model",
    ("datastore create", "type"): "file s3 gcs azure_blob azure_data_lake_gen2 https",
}
_FILES = ("FILE", "PATH", "PATH|URI", "FILE|DIR", "SPEC", "NAME=PATH[:MODE]", "NAME[=PATH[:MODE]]")
# Commands whose NAME is new.
_CREATING = ("create", "register")


# The words that fit, and what the shell says of each.
Words = dict[str, str]


def answer() -> None:
    """Print the words that fit at the cursor, for argcomplete's shell function, and exit."""
    *_, words, _ = split_line(os.environ["COMP_LINE"], int(os.environ["COMP_POINT"]))
    parser, depth = parser_at(words[1:])
    # argcomplete's own variable: which word of the line is the name of the program.
    os.environ["_ARGCOMPLETE"] = str(depth + 1)
    ExclusiveCompletionFinder()(parser, always_complete_options=options_at(parser))


def options_at(parser: argparse.ArgumentParser) -> bool | Literal["long"]:
    """Whether options are offered before a dash is typed: where nothing else fits."""
    return False if parser._get_positional_actions() else "long"


def parser_at(words: Sequence[str]) -> tuple[argparse.ArgumentParser, int]:
    """The parser for what follows ``words``, and how many of them name its command."""
    if not words:
        names = {name: each.help for name, each in COMMANDS.items() if " " not in name}
        return _one_of(names | {group: ", ".join(_verbs(group)) for group in groups()}), 0
    group = words[0]
    if len(words) == 1 and group in groups():
        # A command with the name of its group may take a job: `allranks report JOB`.
        takes_job = group in COMMANDS and group != "dev"
        return _one_of(_verbs(group) | (_jobs() if takes_job else {})), 1
    name, _ = split_command(words)
    if name not in COMMANDS:
        return argparse.ArgumentParser(add_help=False), 0
    parser = parser_of(name)
    for action in parser._actions:
        if action.choices is None:
            cast(Any, action).completer = _completer(name)
    return parser, len(name.split())


def _one_of(words: Words) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    action = parser.add_argument("command")
    cast(Any, action).completer = lambda **_: words
    return parser


def _verbs(group: str) -> Words:
    """The commands of a group by their last word."""
    return {name.partition(" ")[2]: each.help for name, each in in_group(group) if " " in name}


def _completer(name: str) -> Callable[..., Words]:
    """What completes the arguments of a command."""

    def complete(prefix: str, action: argparse.Action, **_: Any) -> Words:
        if action.type in (JobReference, OneOfSeveral):
            return _jobs()
        if choices := _CHOICES.get((name, action.dest)):
            return dict.fromkeys(choices.split(), "")
        words = dict.fromkeys(_names(name, action), "")
        of_files = action.type is Path or action.nargs == argparse.REMAINDER
        if action.metavar not in ("DIR", *_FILES) and not of_files:
            return words
        # Not argcomplete's FilesCompleter: it starts two shells.
        before, equals, path = prefix.rpartition("=")
        for each in glob.glob(f"{glob.escape(path)}*"):
            if os.path.isdir(each):
                words[f"{before}{equals}{each}/"] = ""
            elif action.metavar != "DIR":
                words[f"{before}{equals}{each}"] = ""
        return words

    return complete


def _names(name: str, action: argparse.Action) -> list[str]:
    """The names that the argument may take, if it takes names."""
    if (name, action.dest) in _FIXED:
        return _FIXED[name, action.dest]()
    group, _, verb = name.partition(" ")
    if name == "run" and action.dest in ("compute", "environment", "state"):
        return _recorded(action.dest)
    if action.dest == "name" and verb not in _CREATING and group in _RECORDS:
        return _recorded(group)
    return []


def _statuses() -> list[str]:
    from allranks.statuses import JobStatus

    return [*JobStatus]


def _sorts() -> list[str]:
    from allranks.core.job.list_filters import ALL_SORTS

    return [*ALL_SORTS, *(f"-{each}" for each in ALL_SORTS)]


def _engines() -> list[str]:
    from allranks.engines.registry import KINDS

    return [*KINDS]


def _contexts() -> list[str]:
    from allranks.sdk.connection import contexts

    return [contexts.LOCAL, *contexts.read().servers]


_FIXED: Mapping[tuple[str, str], Callable[[], list[str]]] = {
    ("context use", "name"): _contexts,
    ("context delete", "name"): lambda: _contexts()[1:],
    ("job list", "status"): _statuses,
    ("job list", "sort"): _sorts,
    ("compute create", "type"): _engines,
    ("run", "inside"): lambda: _sessions(),
    **{(f"dev {verb}", "name"): lambda: _sessions() for verb in ("attach", "pull", "stop")},
}


# ------------------------------------------------------------ names in the home


def _has_server_only() -> bool:
    """Whether the database is not a file of this home, so that only a server can read it."""
    from allranks.sdk.connection import contexts

    return contexts.chosen() is not None or settings.home().database_url.exists()


def _get(route: routes.Route[routes.Answer], **query: Any) -> routes.Answer:
    """Ask a server that is running. Raises AllranksError when none is."""
    from allranks.sdk.connection import find_server

    with find_server.connect(start=False) as client:
        return client.ask(route, **query)


def _jobs() -> Words:
    """The newest jobs and their statuses."""
    if _has_server_only():
        return {each["name"]: each["status"] for each in _get(routes.list_jobs, limit=200)}
    return dict(names.jobs(settings.home()))


def _sessions() -> list[str]:
    from allranks.core.job.sessions import PREFIX

    return [name for name, status in _jobs().items() if name[:4] == PREFIX and status == "Running"]


# The server's collection of each group of commands, and its names in the home.
_RECORDS: Mapping[str, tuple[str, Callable[[Home], list[str]]]] = {
    "compute": ("computes", lambda home: [_engines()[0], *names.computes(home)]),
    "environment": ("environments", lambda home: names.assets(home, "environment")),
    "component": ("components", lambda home: names.assets(home, "component")),
    "data": ("data", lambda home: names.assets(home, "data")),
    "model": ("models", lambda home: names.assets(home, "model")),
    "state": ("states", names.states),
    "datastore": ("datastores", lambda home: ["default", *names.datastores(home)]),
    "schedule": ("schedules", names.schedules),
}


def _recorded(group: str) -> list[str]:
    collection, of_home = _RECORDS[group]
    if not _has_server_only():
        return of_home(settings.home())
    answer = _get(routes.by_address(f"GET /{collection}"))
    return sorted(
        {compute["name"] for compute in (answer["computes"] if group == "compute" else answer)}
    )
