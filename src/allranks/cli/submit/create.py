"""`allranks job create` and `job validate`: jobs from YAML files."""

from __future__ import annotations

import argparse
from pathlib import Path

from allranks.api import routes
from allranks.cli.output import show
from allranks.cli.output.errors import print_error
from allranks.cli.run_options import take
from allranks.cli.submit.overrides import engines, note_unread
from allranks.cli.submit.send import (
    after_submit,
    note_outputs,
    outputs_here,
    submit,
)
from allranks.errors import AllranksError, Problem, SpecError, Unreachable, UsageError
from allranks.sdk.connection import find_server
from allranks.sdk.submit.prepare import prepare
from allranks.sdk.submit.shell_variables import with_shell_variables
from allranks.spec.fields.problems import placed
from allranks.spec.yaml import load


def create_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    _file_options(parser)
    take(add, "--name", help="the job's name, instead of the file's")
    add("--stream", action="store_true", help="stream the job and exit with its exit code")
    for name in ("--dry-run", "--in-place", "--cancel-on-interrupt"):
        take(add, name)
    again = "run all steps of a pipeline, also those with an earlier result"
    add("--force-rerun", action="store_true", help=again)
    for name in ("--allow-large-data", "--download", "--rehearse", "--tolerance"):
        take(add, name)


def create(options: argparse.Namespace) -> int:
    """Submit the job of a file, and follow it with --stream."""
    with _JobFile(options.file, options.set) as file:
        if options.cancel_on_interrupt and not options.stream:
            hint = "add --stream, or leave it out"
            raise UsageError("the job is not followed", where="--cancel-on-interrupt", hint=hint)
        spec, base = with_shell_variables(file.job.to_dict()), file.base
        note_unread(options, spec)
        if options.name is not None:
            spec["name"] = options.name
        if options.force_rerun:
            if spec.get("type") != "pipeline":
                hint = "leave it out: other jobs always run"
                raise UsageError("only pipelines reuse steps", where="--force-rerun", hint=hint)
            spec["settings"] = {**(spec.get("settings") or {}), "force_rerun": True}
        if options.rehearse or options.tolerance is not None:
            from allranks.cli.submit.rehearse import rehearse  # lazy: few jobs are rehearsals

            return rehearse(options, spec, base)
        if options.dry_run:
            from allranks.cli.submit.dry_run import dry_run  # lazy: imports the server's models

            large = options.allow_large_code
            return dry_run(
                spec, base, in_place=options.in_place, json=options.json, allow_large=large
            )
        if options.download is not None:
            from allranks.cli.job.download import require_free  # lazy: as above

            require_free(options.download, "" if options.stream else "add --stream")
        spec, outputs = outputs_here(spec, base)
        made = submit(options, spec, base)
        if not options.stream:
            note_outputs(made, outputs)
        return after_submit(
            options,
            made,
            outputs=outputs,
            detach=not options.stream,
            cancel=options.cancel_on_interrupt,
        )


def validate_options(parser: argparse.ArgumentParser) -> None:
    _file_options(parser)


def validate(options: argparse.Namespace) -> int:
    """Check a file as submitting it would. Exit 0, or 2 with every problem."""
    error: AllranksError | None = None
    notes: list[str] | None = None
    elsewhere = find_server.of_another_home()
    file = _JobFile(options.file, options.set)
    try:
        notes = _checked_elsewhere(file, options.allow_large_code) if elsewhere else None
        if notes is None:
            notes = _checked_here(file, options.allow_large_code)
            if elsewhere:
                answers = f"{elsewhere} does not answer"
                notes.insert(0, f"judged by the computes and assets of this machine: {answers}")
    except AllranksError as caught:
        error = caught
    if options.json:
        errors = [problem._asdict() for problem in _problems(error)]
        show.as_json({"valid": error is None, "errors": errors, "notes": notes or []})
    elif error is not None:
        print_error(error)
    elif not options.quiet:
        print(f"{options.file} is valid")
    if not options.json and not options.quiet:
        for note in notes or ():
            show.talk(f"note: {note}")
    return 0 if error is None else 2


def checked(name: str, overrides: list[str], allow_large: bool) -> list[str]:
    """Check a file as submitting it would, without a server. Returns notes: what stands for what in
    a command job, and keys without effect. Raises SpecError with the file's name and lines."""
    return _checked_here(_JobFile(name, overrides), allow_large)


def _checked_here(opened: _JobFile, allow_large: bool) -> list[str]:
    from allranks import settings  # lazy: only validating plans without a server
    from allranks.server.assets.read_only_home import read_only_home  # lazy: as above
    from allranks.server.parents.check import check  # lazy: as above
    from allranks.server.submission.submit import Submission  # lazy: as above

    with opened as file, read_only_home(settings.home()) as assets:
        submission, _ = prepare(file.job.to_dict(), file.base, allow_large=allow_large)
        return check(Submission.load(submission), assets)


def _checked_elsewhere(opened: _JobFile, allow_large: bool) -> list[str] | None:
    """The same by a server of another home; None if it does not answer."""
    with opened as file:
        submission, _ = prepare(file.job.to_dict(), file.base, allow_large=allow_large)
        try:
            notes = find_server.ask(routes.check_job, body=submission)
        except Unreachable:
            return None
        return notes


def _problems(error: AllranksError | None) -> list[Problem]:
    if error is None:
        return []
    if isinstance(error, SpecError):
        return list(error.problems)
    return [Problem(error.message, error.where, hint=error.hint)]


def _file_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("-f", "--file", required=True, metavar="FILE", help="the job's YAML; - is stdin")
    take(add, "--set", help="set a key, e.g. inputs.lr=0.1")
    take(add, "--allow-large-code")


class _JobFile:
    """A job from a file or stdin, and ``base``, the folder that its paths start at.

    A SpecError raised in the block, also by the server, gets the name and the lines of the file.
    """

    def __init__(self, file: str, overrides: list[str]) -> None:
        self._name = "stdin" if file == "-" else file
        self._overrides = overrides
        self.base = Path.cwd() if file == "-" else Path(file).absolute().parent
        self._text = load.content(Path(file))

    def __enter__(self) -> _JobFile:
        names = engines(self._overrides)
        self.job = load.loads(self._text, self._overrides, file=self._name, engines=names)
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, SpecError) and error.file is None:
            data, lines = load.read(self._text, file=self._name)
            for override in self._overrides:
                load.override_key(data, lines, override)
            problems = [placed(problem, lines) for problem in error.problems]
            raise SpecError(problems, file=self._name) from None
