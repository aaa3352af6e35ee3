"""`allranks environment …`: what ranks find around them, by name and version."""

from __future__ import annotations

import argparse
import select
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from allranks.cli.assets import versions
from allranks.cli.assets.versions import WHICH, whole
from allranks.cli.output import show
from allranks.errors import NotFound, SpecError, UsageError
from allranks.plan.amounts import counted
from allranks.sdk.connection import find_server
from allranks.sdk.connection.urls import asset_path, labelled
from allranks.sdk.submit.current_environment import current, tools

# What the map says of a package that is left out.
NONE = "none"
_KIND, _ENVIRONMENTS = "environments", "/api/v1/environments"


def create_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="its name (the file's)")
    add = parser.add_argument
    add("-f", "--file", metavar="FILE", help="an environment's YAML, a conda or requirements file")
    add("--version", metavar="V", help="its version (the next number)")
    add("--description", metavar="TEXT", help="a description to show with it")
    add("--conda-file", metavar="FILE", help="what it has, as a conda file says")
    add("--requirements", metavar="FILE", help="what it has, as a requirements file says")
    add("--pip", action="append", metavar="REQUIREMENT", help="a package that it has; repeat")
    add("--python", metavar="V", help="its Python, such as 3.11 (the one in front of you)")
    add("--image", metavar="IMAGE", help="the image of a container")
    add("--label", action="append", default=[], metavar="LABEL", help="a label for it; repeat")


def create(options: argparse.Namespace) -> int:
    """Add a version of an environment; nothing is made until a job needs it."""
    from allranks.sdk.submit import environment_files  # lazy: reads YAML

    data: dict[str, Any] = {}
    if options.file is not None:
        data = environment_files.from_file(Path(options.file))
    keys = ("version", "description", "conda_file", "requirements", "pip", "python", "image")
    given = {key: getattr(options, key) for key in keys if getattr(options, key) is not None}
    data = {**data, **environment_files.inlined(given, Path())}
    if options.name is not None:
        data["name"] = options.name
    address = labelled(_ENVIRONMENTS, options.label)
    try:
        made = find_server.ask("POST", address, data)
    except SpecError as error:
        raise SpecError(error.problems, file=options.file) from None
    return _told(options, made, versions.made_word(made))


list_environments_options = versions.list_option


def list_environments(options: argparse.Namespace) -> int:
    found = versions.listed(_KIND, options.name)
    if options.json:
        show.as_json(found)
        return 0
    rows = [(e["name"], e["version"], " ".join(e["labels"]), _about(e)) for e in found]
    show.columns(("NAME", "VERSION", "LABELS", "WHAT"), rows)
    return 0


show_environment_options = versions.which_option


def show_environment(options: argparse.Namespace) -> int:
    """An environment as it was written, and what was made of it on this machine."""
    client = find_server.connect()
    found = client.json("GET", _path(options.name))
    found["made"] = _made(client, found)
    if options.json:
        show.as_json(found)
        return 0
    made = found.pop("made")
    versions.print_whole(found)
    if made is not None:
        print(f"\nmade on this machine: {made['folder']}")
        print(f"python {made['python']}, {counted(len(made['packages']), 'package')}")
    return 0


def build_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help=WHICH)
    add = parser.add_argument
    add("-f", "--file", metavar="FILE", help="one that has no name: an environment's YAML, …")


def build(options: argparse.Namespace) -> int:
    """Make an environment on this machine now, instead of when the first job needs it."""
    if (options.name is None) == (options.file is None):
        raise UsageError("which environment?", hint=f"{WHICH}; or -f FILE")
    environment: Any = options.name
    if options.file is not None:
        from allranks.sdk.submit.environment_files import from_file  # lazy: reads YAML

        environment = from_file(Path(options.file))
    told = find_server.connect().json(
        "POST", f"{_ENVIRONMENTS}/recipe", {"environment": environment}
    )
    shelf, wanted = _shelf(told)
    if not options.quiet:
        for note in wanted.notes:
            show.talk(f"note: {note}")
    found = shelf.find(wanted)
    made = found or shelf.provide(wanted, _wait, show.talk if not options.quiet else _nothing)
    if options.json:
        show.as_json({**made._asdict(), "folder": str(made.folder), "was_there": bool(found)})
    else:
        print(made.folder)
        if not options.quiet:
            state = "was there already" if found else "is made"
            show.talk(f"it {state}: python {made.python}, {counted(len(made.packages), 'package')}")
    return 0


def export_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help=WHICH)
    kinds = "requirements (every version as it was found) or yaml (as it was written)"
    parser.add_argument("--format", default="requirements", metavar="KIND", help=kinds)


def export(options: argparse.Namespace) -> int:
    """Print an environment so that it can be made elsewhere, or by other programs."""
    client = find_server.connect()
    found = client.json("GET", _path(options.name))
    if options.format == "yaml":
        from allranks.spec.fields.plain_words import written  # lazy: YAML

        left_out = ("curated", "created_at", "labels")
        print(written({k: v for k, v in found.items() if k not in left_out}), end="")
        return 0
    if options.format != "requirements":
        raise UsageError(f"{options.format!r} is no format", hint="requirements or yaml")
    made = _made(client, found)
    if made is None:
        raise NotFound(
            f"{whole(found)} has not been made on this machine: its versions are not known yet",
            hint=f"allranks environment build {whole(found)}",
        )
    if options.json:
        show.as_json(made)
        return 0
    print(f"# {whole(found)}, as it was made for Python {made['python']}")
    # Where they came from: elsewhere a package of that name may be somebody else's.
    for line in found.get("pip") or []:
        if line.startswith("-"):
            print(line)
    for name, version in made["packages"].items():
        print(f"{name}=={version}")
    return 0


def clone_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help=WHICH)
    parser.add_argument("goal", metavar="NEW_NAME", help="the name of the copy")
    parser.add_argument("--version", metavar="V", help="its version (the next number)")


def clone(options: argparse.Namespace) -> int:
    """Add an environment that asks for the same as another."""
    data = {"name": options.goal, "version": options.version}
    made = find_server.connect().json("POST", f"{_path(options.name)}/clone", data)
    return _told(options, made, versions.made_word(made))


label_options = versions.label_options


def label(options: argparse.Namespace) -> int:
    """Give labels to a version: `NAME@LABEL` means it from now on."""
    made = versions.label(_KIND, options)
    return _told(options, made, f"labelled {', '.join(made['labels'])}")


delete_options = versions.delete_options


def delete(options: argparse.Namespace) -> int:
    """Forget a version; jobs that use it go on."""
    return _told(options, versions.delete(_KIND, options), "deleted")


def stand_for_options(parser: argparse.ArgumentParser) -> None:
    pairs = (
        "what jobs ask for (python=3.6, torch==1.6.*, a package, an image, an environment) and "
        "what they get instead (3.11, torch==2.13.0, NAME, none to leave a package out); repeat. "
        "One alone: it means itself again"
    )
    parser.add_argument("pairs", nargs="*", metavar="ASKED TAKEN", help=pairs)


def stand_for(options: argparse.Namespace) -> int:
    """Say what is taken where what is asked for cannot be had; alone: show all that was said."""
    client = find_server.connect()
    if options.pairs:
        entries = _entries(options.pairs)
        client.json("PUT", f"{_ENVIRONMENTS}/map", entries)
        if not options.quiet and not options.json:
            for asked, taken in entries.items():
                show.talk(f"{asked} {_meaning(taken)}")
        return 0
    found = client.json("GET", f"{_ENVIRONMENTS}/map")
    if options.json:
        show.as_json(found)
        return 0
    own = found["own"]
    rows = [
        (asked, "none (left out)" if taken == NONE else taken, _origin(asked, own))
        for asked, taken in found["map"].items()
    ]
    show.columns(("ASKED", "TAKEN", ""), rows)
    return 0


def _entries(words: Sequence[str]) -> dict[str, str | None]:
    """What is asked for, and what is taken for it. Raises UsageError for a half of a pair."""
    if len(words) == 1:
        return {words[0]: None}
    if len(words) % 2:
        hint = f"say what is taken for {words[-1]}: a version, a name, or none"
        raise UsageError(f"{words[-1]!r} has no counterpart", hint=hint)
    return dict(zip(words[::2], words[1::2], strict=True))


def _meaning(taken: str | None) -> str:
    if taken is None:
        return "means itself"
    return "is left out" if taken == NONE else f"means {taken}"


def _origin(asked: str, own: Mapping[str, str]) -> str:
    return "said here" if asked in own else "built in"


# ---------------------------------------------------------------- showing


def _told(options: argparse.Namespace, made: Mapping[str, Any], word: str) -> int:
    then = f"try it: allranks run -e {whole(made)} -- python -V"
    return versions.tell(options, made, word, _about(made), then)


def _about(found: Mapping[str, Any]) -> str:
    """What it is, in a few words."""
    if found.get("description"):
        return str(found["description"])
    conda = found.get("conda_file")
    several = [f"image {found['image']}"] if found.get("image") else []
    several += ["a conda file"] if conda else []
    several += [f"python {found['python']}"] if found.get("python") else []
    several += found.get("pip") or []
    return ", ".join(several[:6]) + (", …" if len(several) > 6 else "")


def _path(reference: str) -> str:
    return asset_path(_KIND, reference)


# ---------------------------------------------------------------- on this machine


def _shelf(told: Mapping[str, Any]) -> tuple[Any, Any]:
    from allranks.agent.environments.uv import program  # lazy: as above

    # lazy: as little as a job may need
    from allranks.agent.environments.virtual_environments import EnvironmentCache
    from allranks.plan.plan import Recipe  # lazy: as above

    folder = Path(told["environments"])
    environ = {**current(), **tools()}
    uv = program(told["uv"], environ.get("PATH"))
    return EnvironmentCache(folder, uv, environ), Recipe.load(told["recipe"])


def _made(client: Any, found: Mapping[str, Any]) -> dict[str, Any] | None:
    """What was made of it on this machine, if anything."""
    try:
        told = client.json(
            "POST", f"{_ENVIRONMENTS}/recipe", {"environment": f"azureml:{whole(found)}"}
        )
    except SpecError:
        return None  # an image that nothing stands for
    shelf, wanted = _shelf(told)
    made = shelf.find(wanted)
    return None if made is None else {**made._asdict(), "folder": str(made.folder)}


def _wait(fd: int | None = None, seconds: float | None = None) -> None:
    select.select([] if fd is None else [fd], [], [], seconds)


def _nothing(text: str) -> None:
    pass
