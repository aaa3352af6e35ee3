"""`allranks environment …`: Python packages or images for ranks, with names and versions."""

from __future__ import annotations

import argparse
import select
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allranks.api import routes
from allranks.cli.assets import versions
from allranks.cli.assets.versions import WHICH, reference
from allranks.cli.output import show
from allranks.core.amounts import counted
from allranks.core.packing import unpack
from allranks.errors import NotFound, SpecError, UsageError
from allranks.sdk.connection import find_server
from allranks.sdk.submit.current_environment import current, tools

if TYPE_CHECKING:
    from allranks.api.common import Document

# The substitute in the map that leaves a package out.
_NONE = "none"


def create_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="its name (the file's)")
    add = parser.add_argument
    add("-f", "--file", metavar="FILE", help="an environment's YAML, a conda or requirements file")
    add("--version", metavar="V", help="its version (the next number)")
    add("--description", metavar="TEXT", help="a description to show with it")
    add("--conda-file", metavar="FILE", help="a conda file with its packages")
    add("--requirements", metavar="FILE", help="a requirements file with its packages")
    add("--pip", action="append", metavar="REQUIREMENT", help="a package to install; repeat")
    add("--python", metavar="V", help="its Python version, such as 3.11 (the current one)")
    add("--image", metavar="IMAGE", help="a container image")
    add("--label", action="append", default=[], metavar="LABEL", help="a label for it; repeat")
    versions.set_option(add)


def create(options: argparse.Namespace) -> int:
    """Create a version of an environment. It is built when the first job needs it."""
    from allranks.sdk.submit import environment_files  # lazy: reads YAML
    from allranks.spec.yaml import load  # lazy: as above

    data = environment_files.from_file(Path(options.file)) if options.file is not None else {}
    keys = ("version", "description", "conda_file", "requirements", "pip", "python", "image")
    data |= environment_files.inlined(versions.given(options, *keys), Path())
    data |= versions.given(options, "name")
    for override in options.set:
        load.override_key(data, {}, override)
    try:
        environment = find_server.ask(routes.create_environment, body=data, label=options.label)
    except SpecError as error:
        raise SpecError(error.problems, file=options.file) from None
    return _print_created(options, environment)


def _print_created(options: argparse.Namespace, environment: Mapping[str, Any]) -> int:
    usage = f"-e {reference(environment)} -- python -V"
    return versions.print_created(options, environment, _about(environment), usage)


def _about(environment: Mapping[str, Any]) -> str:
    """Its description, or the first of its packages."""
    if environment.get("description"):
        return str(environment["description"])
    parts = [f"image {environment['image']}"] if environment.get("image") else []
    parts += ["a conda file"] if environment.get("conda_file") else []
    parts += [f"python {environment['python']}"] if environment.get("python") else []
    parts += environment.get("pip") or []
    return ", ".join(parts[:6]) + (", …" if len(parts) > 6 else "")


list_environments_options = versions.list_option


def list_environments(options: argparse.Namespace) -> int:
    head = ("NAME", "VERSION", "LABELS", "CONTENT")
    usage = "allranks environment create NAME -f FILE"
    return versions.print_list(options, "environments", head, _row, usage)


def _row(environment: Mapping[str, Any]) -> tuple[str, ...]:
    labels = " ".join(environment["labels"])
    return environment["name"], environment["version"], labels, _about(environment)


show_environment_options = versions.which_option


def show_environment(options: argparse.Namespace) -> int:
    """Print an environment's definition, and its build on this machine."""
    environment = versions.get("environments", options.name)
    build = _local_build(environment)
    if options.json:
        show.as_json({**environment, "made": build})
        return 0
    versions.print_asset(environment)
    if build is not None:
        print(f"\nbuilt on this machine: {build['folder']}")
        show.line(f"python {build['python']}, {counted(len(build['packages']), 'package')}")
    return 0


def build_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help=WHICH)
    file = "an environment without a name: its YAML, a conda or requirements file"
    parser.add_argument("-f", "--file", metavar="FILE", help=file)
    builds = "build packages without a wheel from source, however long that takes"
    parser.add_argument("--allow-builds", action="store_true", help=builds)


def build(options: argparse.Namespace) -> int:
    """Build an environment on this machine before the first job needs it."""
    if (options.name is None) == (options.file is None):
        raise UsageError("name one environment to build", hint=f"{WHICH}; or -f FILE")
    environment: Any = options.name
    if options.file is not None:
        from allranks.sdk.submit.environment_files import from_file  # lazy: reads YAML

        environment = from_file(Path(options.file))
    cache, recipe = _cache_and_recipe(environment)
    if options.allow_builds:
        recipe = recipe._replace(allow_builds=True)
    if not options.quiet:
        for note in recipe.notes:
            show.talk(f"note: {note}")
    existing = cache.find(recipe)
    say = (lambda text: None) if options.quiet else show.talk
    made = existing or cache.provide(recipe, _wait, say)
    if options.json:
        show.as_json({**made._asdict(), "folder": str(made.folder), "was_there": bool(existing)})
        return 0
    print(made.folder)
    if not options.quiet:
        verb = "already exists" if existing else "is built"
        show.talk(f"it {verb}: python {made.python}, {counted(len(made.packages), 'package')}")
    return 0


def export_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help=WHICH)
    kinds = "requirements (exact versions of the local build) or yaml (the definition)"
    parser.add_argument("--format", default="requirements", metavar="KIND", help=kinds)


def export(options: argparse.Namespace) -> int:
    """Print an environment for another machine or program."""
    environment = versions.get("environments", options.name)
    if options.format == "yaml":
        for key in ("curated", "created_at", "labels"):
            environment.pop(key, None)
        versions.print_asset(environment)
        return 0
    if options.format != "requirements":
        raise UsageError(f"{options.format!r} is not a format", hint="requirements or yaml")
    made = _local_build(environment)
    if made is None:
        raise NotFound(
            f"{reference(environment)} is not built on this machine, so its exact versions are "
            "not known",
            hint=f"allranks environment build {reference(environment)}",
        )
    if options.json:
        show.as_json(made)
        return 0
    show.line(f"# {reference(environment)}, as built for Python {made['python']}")
    # The index options: another index may have another package of the same name.
    for line in environment.get("pip") or []:
        if line.startswith("-"):
            show.line(line)
    for name, version in made["packages"].items():
        show.line(f"{name}=={version}")
    return 0


def clone_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help=WHICH)
    parser.add_argument("goal", metavar="NEW_NAME", help="the name of the copy")
    parser.add_argument("--version", metavar="V", help="its version (the next number)")


def clone(options: argparse.Namespace) -> int:
    """Create an environment with the definition of another."""
    data = {"name": options.goal, "version": options.version}
    made = find_server.ask(routes.clone_environment, options.name, body=data)
    return _print_created(options, made)


def map_requirement_options(parser: argparse.ArgumentParser) -> None:
    pairs = (
        "what jobs request (python=3.6, torch==1.6.*, a package, an image, an environment) and "
        "its substitute (3.11, torch==2.13.0, NAME, none to leave a package out); repeat. "
        "REQUESTED alone removes its substitute"
    )
    parser.add_argument("pairs", nargs="*", metavar="REQUESTED SUBSTITUTE", help=pairs)


def map_requirement(options: argparse.Namespace) -> int:
    """Set substitutes for requirements that are unavailable; without any, print the map."""
    if options.pairs:
        entries = _entries(options.pairs)
        find_server.ask(routes.map_environments, body=entries)
        sentences = (f"{request} {_meaning(taken)}" for request, taken in entries.items())
        return show.result(options, entries, *sentences)
    table = find_server.ask(routes.show_environment_map)
    rows = [
        (
            request,
            "none (left out)" if taken == _NONE else taken,
            "set here" if request in table["own"] else "built in",
        )
        for request, taken in table["map"].items()
    ]
    return show.listing(options, table, ("REQUESTED", "SUBSTITUTE", ""), rows)


def _entries(words: Sequence[str]) -> dict[str, str | None]:
    """The substitute of each request, None to remove it. Raises UsageError for half a pair."""
    if len(words) == 1:
        return {words[0]: None}
    if len(words) % 2:
        hint = f"add the substitute for {words[-1]}: a version, a name, or none"
        raise UsageError(f"{words[-1]!r} has no substitute", hint=hint)
    return dict(zip(words[::2], words[1::2], strict=True))


def _meaning(substitute: str | None) -> str:
    if substitute is None:
        return "has no substitute"
    return "is left out" if substitute == _NONE else f"means {substitute}"


# ---------------------------------------------------------------- on this machine


def _cache_and_recipe(environment: Any) -> tuple[Any, Any]:
    """This machine's cache of environments, and what to build. Raises SpecError for an image
    that the map has no environment for."""
    from allranks.agent.environments.uv import program  # lazy: only building needs it

    # lazy: as above
    from allranks.agent.environments.virtual_environments import EnvironmentCache
    from allranks.core.plan import Recipe  # lazy: as above

    answer = find_server.ask(routes.show_recipe, body={"environment": environment})
    environ = {**current(), **tools()}
    uv = program(answer["uv"], environ.get("PATH"))
    cache = EnvironmentCache(Path(answer["environments"]), uv, environ)
    return cache, unpack(Recipe, answer["recipe"])


def _local_build(environment: Mapping[str, Any]) -> Document | None:
    try:
        cache, recipe = _cache_and_recipe(f"azureml:{reference(environment)}")
    except SpecError:
        return None  # an image without a substitute
    made = cache.find(recipe)
    return None if made is None else {**made._asdict(), "folder": str(made.folder)}


def _wait(fd: int | None = None, seconds: float | None = None) -> None:
    select.select([] if fd is None else [fd], [], [], seconds)
