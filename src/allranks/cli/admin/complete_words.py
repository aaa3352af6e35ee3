"""Answer the scripts of `allranks completion`: the words that fit at a TAB.

We do not use argcomplete, which needs one tree of parsers, nor shtab, which writes all words into
the script: we build one parser at a time, and names of jobs change. Names are read from the home's
database without starting a server. The first line of the answer says whether files or folders fit
as well.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from allranks import settings
from allranks.cli.commands import COMMANDS, groups, in_group, split_command
from allranks.cli.job_names import JobReference
from allranks.cli.parser import parser_of
from allranks.settings import Home
from allranks.store import names


class Kind(StrEnum):
    """What fits besides the words."""

    WORDS = "words"
    FILES = "files"
    FOLDERS = "folders"


class Word(NamedTuple):
    """``about`` is shown beside the text by shells that can."""

    text: str
    about: str = ""


class Completions(NamedTuple):
    words: Sequence[Word] = ()
    kind: Kind = Kind.WORDS


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


def answer(words: Sequence[str]) -> int:
    """Print what fits in the place of the last word; ``words`` start with the shell's name.

    Errors print nothing: somebody is typing.
    """
    shell, *typed = words or ("",)
    if shell == "bash":
        typed = _joined(typed)
    try:
        completions = complete(typed or [""])
    except Exception:
        completions = Completions()
    current = typed[-1] if typed else ""
    print(completions.kind)
    for word in completions.words:
        if word.text.startswith(current):
            print(_line(shell, word, current))
    return 0


def _line(shell: str, word: Word, current: str) -> str:
    if shell == "fish":
        return f"{word.text}\t{word.about}" if word.about else word.text
    if shell == "zsh":
        text = word.text.replace("\\", "\\\\").replace(":", "\\:")
        return f"{text}:{word.about}" if word.about else text
    # bash splits words at `=` and `:`, and replaces only what follows the last one.
    return word.text[max(current.rfind("="), current.rfind(":")) + 1 :]


def _joined(words: Sequence[str]) -> list[str]:
    """Words as they were typed: bash splits `--sort=age` into three."""
    joined: list[str] = []
    glue = False
    for word in words:
        separator = word in ("=", ":")
        if joined and (glue or separator):
            joined[-1] += word
        else:
            joined.append(word)
        glue = separator
    return joined


def complete(words: Sequence[str]) -> Completions:
    """What fits in the place of the last word, whatever of it is typed."""
    *before, current = words
    if not before:
        return Completions(_commands(current))
    group = before[0]
    if len(before) == 1 and group in groups():
        verbs = [
            Word(name.removeprefix(f"{group} "), each.help)
            for name, each in in_group(group)
            if " " in name
        ]
        own = _arguments(group, [], current) if group in COMMANDS else Completions()
        return Completions([*verbs, *own.words], own.kind)
    name, rest = split_command(before)
    return _arguments(name, rest, current) if name in COMMANDS else Completions()


def _commands(current: str) -> list[Word]:
    if current.startswith("-"):
        return [Word("--help"), Word("--version")]
    single = [Word(n, each.help) for n, each in COMMANDS.items() if n.split()[0] not in groups()]
    verbs = {group: (n.partition(" ")[2] or n for n, _ in in_group(group)) for group in groups()}
    return [*single, *(Word(group, ", ".join(each)) for group, each in verbs.items())]


def _arguments(name: str, rest: Sequence[str], current: str) -> Completions:
    """What fits after the words ``rest`` of a command."""
    parser = parser_of(name)
    places = [each for each in parser._actions if not each.option_strings]
    pending: argparse.Action | None = None  # the option that waits for its value
    used: set[str] = set()
    literal = False
    for word in rest:
        if literal:
            places = _remaining(places)
        elif pending is not None:
            pending = None
        elif word == "--":
            literal = True
        elif word.startswith("-") and len(word) > 1:
            option, equals, _ = word.partition("=")
            action = parser._option_string_actions.get(option)
            if action is not None:
                used.add(action.dest)
                pending = action if action.nargs != 0 and not equals else None
        elif places and places[0].nargs == argparse.REMAINDER:
            literal = True
        else:
            places = _remaining(places)
    if pending is not None:
        return _values(name, pending)
    if not literal and current.startswith("-"):
        return _options(name, parser, used, current)
    if places:
        return _values(name, places[0])
    return _options(name, parser, used, current) if not literal and not current else Completions()


def _remaining(places: list[argparse.Action]) -> list[argparse.Action]:
    """The positional arguments that take a word after the first of them got one."""
    repeats = places and places[0].nargs in ("+", "*", argparse.REMAINDER)
    return places if repeats else places[1:]


def _options(
    name: str, parser: argparse.ArgumentParser, used: set[str], current: str
) -> Completions:
    option, equals, _ = current.partition("=")
    if equals:
        action = parser._option_string_actions.get(option)
        values = Completions() if action is None else _values(name, action)
        words = [Word(f"{option}={each.text}", each.about) for each in values.words]
        return Completions(words, values.kind)
    return Completions(
        [
            Word(text, (each.help or "").replace("%%", "%"))
            for each in parser._actions
            if each.help != argparse.SUPPRESS
            if each.dest not in used or isinstance(each, argparse._AppendAction)
            for text in each.option_strings
            if text.startswith("--") or len(each.option_strings) == 1 or current == text
        ]
    )


def _values(name: str, action: argparse.Action) -> Completions:
    """What an argument or option of the command takes."""
    if action.choices is not None:
        return Completions([Word(str(each)) for each in action.choices])
    if action.type is JobReference:
        return Completions(_jobs())
    if choices := _CHOICES.get((name, action.dest)):
        return Completions([Word(each) for each in choices.split()])
    kind = Kind.WORDS
    if action.metavar in _FILES or action.type is Path or action.nargs == argparse.REMAINDER:
        kind = Kind.FILES
    elif action.metavar == "DIR":
        kind = Kind.FOLDERS
    return Completions([Word(each) for each in _names(name, action)], kind)


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
    from allranks.core.job.list_filters import SORTS

    return [*SORTS, *(f"-{each}" for each in SORTS)]


def _engines() -> list[str]:
    from allranks.engines.registry import KINDS

    return [*KINDS]


_FIXED: Mapping[tuple[str, str], Callable[[], list[str]]] = {
    ("job list", "status"): _statuses,
    ("job list", "sort"): _sorts,
    ("compute create", "type"): _engines,
}


# ------------------------------------------------------------ names in the home


def _has_server_only() -> bool:
    """Whether the database is not a file of this home, so that only a server can read it."""
    from allranks.sdk.connection import contexts

    return contexts.chosen() is not None or settings.home().database_url.exists()


def _get(path: str) -> Any:
    """Ask a server that is running. Raises AllranksError when none is."""
    from allranks.sdk.connection import find_server

    with find_server.connect(start=False) as client:
        return client.json("GET", path)


def _jobs() -> list[Word]:
    if _has_server_only():
        return [Word(each["name"], each["status"]) for each in _get("/api/v1/jobs?limit=200")]
    return [Word(*each) for each in names.jobs(settings.home())]


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
    answer = _get(f"/api/v1/{collection}")
    return sorted({each["name"] for each in (answer["computes"] if group == "compute" else answer)})
