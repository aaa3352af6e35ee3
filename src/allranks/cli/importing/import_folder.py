"""The command."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from allranks import folder_trees, settings
from allranks.api import routes
from allranks.cli.importing import job_files, programs
from allranks.cli.importing.finding import NO, NOT_KNOWN, PARTLY, YES, Finding, prefix_of
from allranks.cli.importing.runs import import_runs
from allranks.cli.output import show
from allranks.cli.parser import refuse_with
from allranks.errors import NotFound, Unreachable, UsageError
from allranks.sdk.connection import find_server

if TYPE_CHECKING:
    from allranks.cli.importing.judge import IsRegistered

_ANSWERS = (YES, PARTLY, NO, NOT_KNOWN)
_SKIPPED = {"node_modules", "__pycache__", "site-packages"}
_HINT = "allranks import FOLDER, or allranks import runs FOLDER"


def import_folder_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    what = "a folder with job files, programs, notebooks, scripts; after `runs`: with W&B's and "
    what += "TensorBoard's files, of which each run becomes a job that ran elsewhere"
    add("folder", nargs="+", metavar="[runs] FOLDER", help=what)
    what = "write the maps: every name of a compute that is not there stands for the default one"
    add("--write", action="store_true", help=what)
    what = "with --write: the folder with copies of the data, by container or bucket"
    add("--data", metavar="FOLDER", help=what)


def import_folder(options: argparse.Namespace) -> int:
    """Say of each file whether it would run. Exit 0, or 1 if one would not."""
    *which, folder = options.folder
    if options.data is not None and not options.write:
        raise UsageError("--data needs --write", where="--data", hint="add --write")
    if options.data is not None and not Path(options.data).is_dir():
        hint = "give the folder that has the copies, each in a folder of its container's name"
        raise UsageError(f"{options.data} is not a folder", where="--data", hint=hint)
    if which == ["runs"]:
        refuse_with("import runs", {"--write": options.write})
        return import_runs(options, folder)
    if which:
        raise UsageError(f"import takes one folder, not {len(options.folder)}", hint=_HINT)
    root = Path(folder)
    if not root.is_dir():
        raise UsageError(f"{folder} is not a folder", hint="give the folder to look into")
    written = _write(list(_looked(root)), options.data) if options.write else {}
    findings = list(_looked(root))
    if options.json:
        show.as_json({"files": [finding._asdict() for finding in findings], "written": written})
    else:
        _print(options, findings, written)
    return int(any(finding.runs == NO for finding in findings))


def _looked(root: Path) -> Iterator[Finding]:
    from allranks.server.assets.read_only_home import is_registered  # lazy: imports the database

    registered: IsRegistered = partial(is_registered, settings.home())
    if find_server.of_another_home():
        registered = _is_registered_there
    for folder, folders, files in folder_trees.walk(root):
        folders[:] = sorted(e for e in folders if e not in _SKIPPED and not e.startswith("."))
        for name in sorted(files):
            file = Path(folder, name)
            looked = None
            if not file.is_file():
                continue  # a pipe, which would not end
            if file.suffix in (".yml", ".yaml"):
                looked = job_files.look(file, str(file.relative_to(root)))
            elif file.suffix in (".py", ".ipynb"):
                looked = programs.look_at_program(file, str(file.relative_to(root)), registered)
            elif file.suffix in (".sh", ".bash"):
                looked = programs.look_at_script(file, str(file.relative_to(root)))
            if looked is not None:
                yield looked


def _is_registered_there(kind: str, name: str, version: str | None = None) -> bool:
    """As `is_registered`, of the server in use; False if it does not answer."""
    collection = kind if kind == "data" else f"{kind}s"
    try:
        rows = find_server.ask(routes.by_address(f"GET /{collection}"), name=name)
    except (NotFound, Unreachable):
        return False
    return any(version in (None, row["version"]) for row in rows)


def _write(findings: Sequence[Finding], data: str | None) -> dict[str, str]:
    """Map the computes that are not there and, with ``data``, the addresses. Returns the maps."""
    answer = find_server.ask(routes.list_computes)
    default = next(
        (compute["name"] for compute in answer["computes"] if compute["is_default"]), None
    )
    known = {compute["name"] for compute in answer["computes"]} | set(answer["stands_for"])
    missing = {name for finding in findings for name in finding.computes} - known - _STANDING
    made = {name: default for name in sorted(missing) if default is not None}
    if made:
        find_server.ask(routes.map_computes, body=made)
    places: dict[str, str] = {}
    if data is not None:
        before = find_server.ask(routes.show_data_map)
        for prefix in sorted(
            {prefix_of(address) for finding in findings for address in finding.data}
        ):
            folder = Path(data).absolute() / _name(prefix)
            if mapped := next((each for each in before if prefix.startswith(each)), None):
                if before[mapped] != f"{folder}/":
                    show.talk(f"{mapped} stands for {before[mapped]}: allranks data map changes it")
            elif folder.is_dir():
                places[prefix] = f"{folder}/"
            else:
                show.talk(f"there is no copy of {prefix}: {folder} is not a folder")
        if places:
            find_server.ask(routes.map_data, body=places)
    return made | places


# Names of computes that mean the default one without a map.
_STANDING = {"cpu-cluster", "gpu-cluster", "serverless"}


def _name(prefix: str) -> str:
    """The container or bucket of a prefix, or the host of a site."""
    rest = prefix.split("://", 1)[1].rstrip("/")
    return rest.partition("@")[0] if "@" in rest else rest.rpartition("/")[2]


def _print(options: argparse.Namespace, files: Sequence[Finding], written: dict[str, str]) -> None:
    if not files:
        show.talk("no file for Azure ML, `az ml`, `ssm` or SageMaker is in this folder")
        return
    rows = [(each.file, each.kind, each.runs, _first(each)) for each in files]
    show.listing(options, [], ("FILE", "KIND", "RUNS", "WHY OR HOW"), rows)
    for file in files:
        more = file.notes if _first(file).endswith("…") else ()
        if file.problems or more:
            show.line("")
            show.line(file.file)
        for message, hint in file.problems:
            show.line(f"  {message}")
            if hint:
                show.line(f"    hint: {hint}")
        for note in more:
            show.line(f"  {note}")
    counts = {runs: sum(each.runs == runs for each in files) for runs in _ANSWERS}
    prefixes = sorted({prefix_of(address) for each in files for address in each.data})
    if prefixes:
        print("\ndata is read from (public without credentials, or a copy by `allranks data map`):")
        for prefix in prefixes:
            show.line(f"  {prefix}")
    for name, place in written.items():
        show.line(f"{name} stands for {place}")
    print(
        f"\n{counts[YES]} run, {counts[PARTLY]} in part or after a map, {counts[NO]} do not, "
        f"{counts[NOT_KNOWN]} not known"
    )


def _first(each: Finding) -> str:
    text = each.problems[0][0] if each.problems else "; ".join(each.notes)
    return text if len(text) < 80 else f"{text[:77]}…"
