"""What may come next on a command line: asked by the scripts of `allranks completion` at each TAB.

Our own, because argcomplete needs one tree of parsers and shtab writes all words into the script:
we make one parser at a time, and names of jobs come and go.

Only the parser of the command that is typed is made, and names are read from the home's record:
no server is started for a TAB. The answer's first line says whether files or folders fit as well.
"""

from __future__ import annotations

import argparse
import importlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from allranks import settings
from allranks.cli.commands import COMMANDS, chosen, groups, in_group
from allranks.cli.job_names import JobReference
from allranks.cli.parser import parser_of
from allranks.store import names


class Kind(StrEnum):
    """What fits beside the words of the answer."""

    WORDS = "words"
    FILES = "files"
    FOLDERS = "folders"


class Word(NamedTuple):
    """One that fits; ``about`` is shown beside it, where the shell does that."""

    text: str
    about: str = ""


class Fits(NamedTuple):
    """All that may stand in a place."""

    words: Sequence[Word] = ()
    kind: Kind = Kind.WORDS


# Values that an option takes, where its parser does not say them.
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
# Positional arguments that name something new, or a thing of another group.
_NEW = ("create", "register", "goal")


def answer(words: Sequence[str]) -> int:
    """Print what may stand in the place of the last word; ``words`` begin with the shell's name.
    What goes wrong shows nothing: somebody is typing."""
    shell, *typed = words or ("",)
    if shell == "bash":
        typed = _joined(typed)
    try:
        fits = complete(typed or [""])
    except Exception:
        fits = Fits()
    current = typed[-1] if typed else ""
    print(fits.kind)
    for word in fits.words:
        if word.text.startswith(current):
            print(_line(shell, word, current))
    return 0


def _line(shell: str, word: Word, current: str) -> str:
    if shell == "fish":
        return f"{word.text}\t{word.about}" if word.about else word.text
    if shell == "zsh":
        text = word.text.replace("\\", "\\\\").replace(":", "\\:")
        return f"{text}:{word.about}" if word.about else text
    # bash takes `=` and `:` for ends of words, and replaces what is behind the last one.
    return word.text[max(current.rfind("="), current.rfind(":")) + 1 :]


def _joined(words: Sequence[str]) -> list[str]:
    """Words as they were typed: bash cuts `--sort=age` into three."""
    found: list[str] = []
    glue = False
    for word in words:
        cut = word in ("=", ":")
        if found and (glue or cut):
            found[-1] += word
        else:
            found.append(word)
        glue = cut
    return found


def complete(words: Sequence[str]) -> Fits:
    """What fits in the place of the last word, whatever of it is typed."""
    *before, current = words
    if not before:
        return Fits(_commands(current))
    if before == [before[0]] and before[0] in groups():
        verbs = [
            Word(name.removeprefix(f"{before[0]} "), each.help)
            for name, each in in_group(before[0])
            if " " in name
        ]
        own = _arguments(before[0], [], current) if before[0] in COMMANDS else Fits()
        return Fits([*verbs, *own.words], own.kind)
    name, rest = chosen(before)
    return _arguments(name, rest, current) if name in COMMANDS else Fits()


def _commands(current: str) -> list[Word]:
    if current.startswith("-"):
        return [Word("--help"), Word("--version")]
    grouped = groups()
    single = [Word(n, each.help) for n, each in COMMANDS.items() if n.split()[0] not in grouped]
    several = (", ".join(n.partition(" ")[2] or n for n, _ in in_group(each)) for each in grouped)
    return [*single, *(Word(each, verbs) for each, verbs in zip(grouped, several, strict=True))]


def _arguments(name: str, rest: Sequence[str], current: str) -> Fits:
    """What fits behind the words ``rest`` of a command."""
    parser = parser_of(name, importlib.import_module(COMMANDS[name].module))
    known = parser._option_string_actions
    places = [each for each in parser._actions if not each.option_strings]
    waiting: argparse.Action | None = None
    used: set[str] = set()
    literal = False
    for word in rest:
        if literal:
            places = _after(places)
        elif waiting is not None:
            waiting = None
        elif word == "--":
            literal = True
        elif word.startswith("-") and len(word) > 1:
            option, given, _ = word.partition("=")
            found = known.get(option)
            if found is not None:
                used.add(found.dest)
                waiting = found if found.nargs != 0 and not given else None
        elif places and places[0].nargs == argparse.REMAINDER:
            literal = True
        else:
            places = _after(places)
    if waiting is not None:
        return _values(name, waiting)
    if not literal and current.startswith("-"):
        return _options(name, parser, used, current)
    if places:
        return _values(name, places[0])
    return _options(name, parser, used, current) if not literal and not current else Fits()


def _after(places: list[argparse.Action]) -> list[argparse.Action]:
    """The positional arguments that are left when a word was given to the first."""
    several = places and places[0].nargs in ("+", "*", argparse.REMAINDER)
    return places if several else places[1:]


def _options(name: str, parser: argparse.ArgumentParser, used: set[str], current: str) -> Fits:
    option, given, _ = current.partition("=")
    if given:
        found = parser._option_string_actions.get(option)
        fits = Fits() if found is None else _values(name, found)
        return Fits([Word(f"{option}={each.text}", each.about) for each in fits.words], fits.kind)
    return Fits(
        [
            Word(text, (each.help or "").replace("%%", "%"))
            for each in parser._actions
            if each.help != argparse.SUPPRESS
            if each.dest not in used or isinstance(each, argparse._AppendAction)
            for text in each.option_strings
            if text.startswith("--") or len(each.option_strings) == 1 or current == text
        ]
    )


def _values(name: str, action: argparse.Action) -> Fits:
    """What an argument or option of the command takes."""
    if action.choices is not None:
        return Fits([Word(str(each)) for each in action.choices])
    if action.type is JobReference:
        return Fits(_jobs())
    if found := _CHOICES.get((name, action.dest)):
        return Fits([Word(each) for each in found.split()])
    kind = Kind.WORDS
    if action.metavar in _FILES or action.type is Path or action.nargs == argparse.REMAINDER:
        kind = Kind.FILES
    elif action.metavar == "DIR":
        kind = Kind.FOLDERS
    look = _LOOKED_UP.get(_thing(name, action))
    return Fits([*map(Word, look())] if look else [], kind)


def _thing(name: str, action: argparse.Action) -> str:
    """What kind of name is meant, as a key of ``_LOOKED_UP``."""
    group, _, verb = name.partition(" ")
    if (name, action.dest) in (("job list", "status"), ("job list", "sort")):
        return action.dest
    if name == "compute create" and action.dest == "type":
        return "engine"
    if name == "run" and action.dest in ("compute", "environment", "state"):
        return action.dest
    return group if action.dest == "name" and verb not in _NEW else ""


def _statuses() -> list[str]:
    from allranks.statuses import JobStatus

    return [*JobStatus]


def _sorts() -> list[str]:
    from allranks.plan.job.list_filters import SORTS

    return [*SORTS, *(f"-{each}" for each in SORTS)]


def _engines() -> list[str]:
    from allranks.engines.registry import KINDS

    return [*KINDS]


# ------------------------------------------------------------ names in the home


def _elsewhere() -> bool:
    """Whether the record is not a file of this home: only its server can be asked."""
    home = settings.home()
    return bool(os.environ.get("ALLRANKS_SERVER", "").strip()) or home.database_url.exists()


def _asked(path: str) -> list[dict[str, Any]]:
    """What a server that runs says. Raises an error when none does."""
    from allranks.sdk.connection import find_server

    with find_server.connect(start=False) as client:
        found: list[dict[str, Any]] = client.json("GET", path)
    return found


def _jobs() -> list[Word]:
    if _elsewhere():
        return [Word(each["name"], each["status"]) for each in _asked("/api/v1/jobs?limit=200")]
    return [Word(*each) for each in names.jobs(settings.home())]


def _unique(found: Iterable[Mapping[str, Any]]) -> list[str]:
    return sorted({str(each["name"]) for each in found})


def _computes() -> list[str]:
    if _elsewhere():
        return _unique(_asked("/api/v1/computes"))
    return [_engines()[0], *names.computes(settings.home())]


def _assets(kind: str) -> Callable[[], list[str]]:
    def look() -> list[str]:
        if not _elsewhere():
            return names.assets(settings.home(), kind)
        from allranks.sdk.connection.urls import versions_path

        return _unique(_asked(versions_path(f"{kind}s" if kind != "data" else kind, None)))

    return look


def _states() -> list[str]:
    return _unique(_asked("/api/v1/states")) if _elsewhere() else names.states(settings.home())


def _datastores() -> list[str]:
    if _elsewhere():
        return _unique(_asked("/api/v1/datastores"))
    return ["default", *names.datastores(settings.home())]


_LOOKED_UP: Mapping[str, Callable[[], list[str]]] = {
    "status": _statuses,
    "sort": _sorts,
    "engine": _engines,
    "compute": _computes,
    "environment": _assets("environment"),
    "data": _assets("data"),
    "model": _assets("model"),
    "state": _states,
    "datastore": _datastores,
}
