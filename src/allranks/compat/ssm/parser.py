"""The flags of simple-sagemaker's lines."""

from __future__ import annotations

import argparse
import difflib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from allranks.compat.ssm.task import KINDS, REPLICATED, SHARDED, Channel, Request, Task
from allranks.errors import UsageError

FRAMEWORKS = ("pytorch", "tensorflow", "sklearn")
DISTRIBUTIONS = (REPLICATED, SHARDED)


_NO_REPOSITORY = "environments are built on the nodes"
# Options that have no effect, and why. They are noted when a line has them.
IDLE_FLAGS: Mapping[str, str] = {
    "--bucket_name": "there is no bucket",
    "--max_wait_mins": "max_run_mins is the limit",
    "--py_version": "it is the current Python's",
    "--framework_version": "allranks environment map",
    **dict.fromkeys(("--aws_repo_name", "--repo_name", "--image_tag"), _NO_REPOSITORY),
}


def _idle(add: Callable[..., object], *flags: str, **more: Any) -> None:
    add(*flags, help=f"no effect: {IDLE_FLAGS[flags[0]]}", **more)


def idle_notes(options: argparse.Namespace) -> list[str]:
    """A sentence for each option of a line that has no effect."""
    flags = ((flag, why) for flag, why in IDLE_FLAGS.items() if getattr(options, flag[2:], None))
    return [f"note: no effect here: {flag} ({why})" for flag, why in flags]


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message, hint=f"see `{self.prog} --help`")


def parser() -> Parser:
    """Of all lines."""
    made = Parser(prog="allranks ssm", description="run lines of simple-sagemaker")
    kinds = made.add_subparsers(dest="kind", required=True, metavar="run|shell|process|data")
    for kind, what in (
        ("run", "run a Python script or a .sh file"),
        ("shell", "run a line of bash"),
        ("process", "run a processing task"),
        ("data", "download what a task has left"),
    ):
        one = kinds.add_parser(kind, help=what, description=what)
        add = one.add_argument
        add("--project_name", "-p", required=True, type=_named, help="the project")
        add("--task_name", "-t", required=True, type=_named, help="the task")
        add("--prefix", default="", help="what the project's name begins with")
        _idle(add, "--bucket_name", "-b")
        add("--clean_state", "--cs", action="store_true", help="clear the task's state")
        add("--output_path", "-o", help="the folder to download to; logs always")
        for each in ("state", "model", "output"):
            add(f"--download_{each}", action="store_true", help=f"download the {each}")
        if kind != "data":
            _of_jobs(one, kind)
    return made


def _of_jobs(one: Parser, kind: str) -> None:
    add = one.add_argument
    add("--keep_state", "--ks", dest="clean_state", action="store_false", help="the default")
    add("--force_running", "--fr", action="store_true", help="run it though it is completed")
    if kind == "run":
        add("--source_dir", "-s", default="", help="the folder with the code")
        add("--entry_point", "-e", required=True, help="a .py or .sh file")
    elif kind == "shell":
        add("--cmd_line", "--cmd", required=True, type=_named, help="the line of bash")
        add("--dir_files", help="a folder whose files are laid beside it")
    else:
        add("--code", help="the file to run")
        add("--entrypoint", "-e", nargs="+", help="the program, instead of `command` and `code`")
        add("--command", nargs="+", default=["python3"], help="what runs `code` (python3)")
        add("--env", nargs=2, metavar=("KEY", "VALUE"), action="append", help="a variable")
        add("--arguments", nargs="+", default=[], help="arguments, as those behind `--`")
    add("--dependencies", "-d", nargs="+", default=[], help="files and folders laid beside it")
    add("--instance_type", "--it", default="", help="says how many GPUs, if it is known")
    add("--instance_count", "--ic", type=int, default=1, help="the number of nodes (1)")
    add("--volume_size", "-v", type=int, help="GB; a note says if the disk has less")
    add("--max_run_mins", type=float, default=1440, help="minutes until it is ended (1440)")
    if kind != "process":
        add("--no_spot", dest="spot", action="store_false", help="do not run a lost task again")
        add("--use_spot_instances", dest="spot", action="store_true", help="the default")
        _idle(add, "--max_wait_mins", type=float)
        add("--model_uri", help="a path or address; channel `model`")
        add("--distribution", type=_json, help="SageMaker's distribution, as JSON")
        two = ("NAME", "REGEX")
        add("--metric_definitions", "--md", nargs=2, metavar=two, action="append", help="a metric")
        _idle(add, "--py_version", "--pv")
    one.set_defaults(spot=kind != "process")
    for name in (("--aws_repo_name", "--ar"), ("--repo_name", "--rn"), ("--image_tag",)):
        _idle(add, *name)
    add("--docker_file_path_or_content", "--df", default="", help="a Dockerfile or lines of one")
    add("--framework", "-f", default="", choices=FRAMEWORKS, help="else the current Python")
    _idle(add, "--framework_version", "--fv")
    places = "[FullyReplicated|ShardedByS3Key] [SUBDIR]"
    several: dict[str, Any] = {"nargs": "+", "action": "append", "default": []}
    add("--input_path", "-i", metavar="PATH", **several, help=f"channel `data`: PATH {places}")
    what = f"NAME ADDRESS {places}"
    add("--input_s3", "--iis", metavar="NAME", **several, help=f"channel NAME: {what}")
    what = f"NAME TASK {'|'.join(KINDS)} {places}"
    add("--input_task", "--iit", metavar="NAME", **several, help=f"channel NAME: {what}")
    add("--tag", nargs=2, metavar=("KEY", "VALUE"), action="append", help="a tag of the job")


def read(words: Sequence[str]) -> tuple[argparse.Namespace, dict[str, str], list[str]]:
    """The options of a line, its hyperparameters, and what is behind `--`. Raises UsageError."""
    behind: list[str] = []
    if "--" in words:
        at = list(words).index("--")
        words, behind = words[:at], [*words[at + 1 :]]
    made = parser()
    _check_spelling(made, words)
    options, rest = made.parse_known_args(list(words))
    if len(rest) % 2 or any(not each.startswith("--") for each in rest[::2]):
        hint = "parameters of the script are pairs: --KEY VALUE"
        raise UsageError(f"not understood: {' '.join(rest)}", hint=hint)
    return (
        options,
        {key[2:]: value for key, value in zip(rest[::2], rest[1::2], strict=True)},
        behind,
    )


def _check_spelling(made: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Raise UsageError for a word that is nearly an option. It would become a parameter."""
    (choice,) = (e for e in made._actions if isinstance(e, argparse._SubParsersAction))
    if not words or words[0] not in choice.choices:
        return
    flags = [*choice.choices[words[0]]._option_string_actions]
    for word in (each.partition("=")[0] for each in words[1:] if each.startswith("--")):
        if any(flag.startswith(word) for flag in flags):
            continue
        if near := difflib.get_close_matches(word, [e for e in flags if len(e) > 4], 1, 0.84):
            hint = f"did you mean {near[0]}? Parameters of the script can be given behind `--`"
            raise UsageError(f"{word} is not an option of `ssm {words[0]}`", hint=hint)


def request_of(
    options: argparse.Namespace, hps: dict[str, str], behind: list[str], task: Task
) -> Request:
    """What a line runs. Raises UsageError."""
    kind = options.kind
    shared: dict[str, Any] = {
        "kind": kind,
        "files": list(options.dependencies),
        "channels": _channels(options, task),
        "instance_type": options.instance_type,
        "instance_count": options.instance_count,
        "spot": options.spot,
        "minutes": options.max_run_mins,
        "dockerfile": options.docker_file_path_or_content,
        "framework": options.framework,
        "tags": dict(options.tag or ()),
        "clean_state": options.clean_state,
    }
    if kind == "process":
        if not (options.code or options.entrypoint):
            raise UsageError("nothing to run", hint="give --code FILE or --entrypoint PROGRAM")
        return Request(
            **shared,
            entry=options.code or "",
            command=options.command,
            entrypoint=options.entrypoint or (),
            arguments=[*options.arguments, *behind],
            env=dict(options.env or ()),
        )
    shared["distribution"] = options.distribution
    shared["metrics"] = dict(options.metric_definitions or ())
    if kind == "shell":
        if behind:
            hint = "write them into --cmd_line"
            raise UsageError(f"a shell task takes no arguments: {' '.join(behind)}", hint=hint)
        if options.dir_files:
            shared["files"] += [str(path) for path in sorted(Path(options.dir_files).iterdir())]
        return Request(**shared, command=options.cmd_line, hps=hps)
    return Request(
        **shared,
        entry=_entry(options.source_dir, options.entry_point),
        source=options.source_dir,
        arguments=[*behind, *arguments_of(hps)],
        hps=hps,
    )


def arguments_of(hps: Any) -> list[str]:
    """Hyperparameters as SageMaker gives them to a script: sorted, one letter with one dash."""
    words: list[str] = []
    for key in sorted(hps):
        value = hps[key]
        text = value if isinstance(value, str) else json.dumps(value)
        words += [f"-{key}" if len(key) == 1 else f"--{key}", text]
    return words


def _entry(source: str, entry: str) -> str:
    if source and not Path(source, entry).exists() and Path(entry).exists():
        return entry
    return str(Path(source, entry)) if source else entry


def _channels(options: argparse.Namespace, task: Task) -> dict[str, Channel]:
    channels: dict[str, Channel] = {}
    for words in options.input_path[:1]:
        path, distribution, subdir = _placed(words, 1, "--input_path")
        channels["data"] = Channel(_below(path, subdir), distribution)
    for words in options.input_s3:
        name, address, distribution, subdir = _placed(words, 2, "--input_s3")
        if not address.startswith("s3://"):
            hint = "local data is --input_path"
            raise UsageError(f"{address} is no S3 address", where="--input_s3", hint=hint)
        channels[name] = Channel(_below(address, subdir), distribution)
    for words in options.input_task:
        name, other, kind, distribution, subdir = _placed(words, 3, "--input_task")
        channels[name] = Task(options.project_name, other, options.prefix).as_input(
            kind, distribution, subdir
        )
    if getattr(options, "model_uri", None):
        channels["model"] = Channel(options.model_uri)
    return channels


def _placed(words: Sequence[str], count: int, flag: str) -> list[str]:
    """The words of an input, with its distribution and subfolder."""
    if not count <= len(words) <= count + 2:
        raise UsageError(f"{' '.join(words)} is not an input", where=flag, hint="see --help")
    distribution = words[count] if len(words) > count else REPLICATED
    if distribution not in DISTRIBUTIONS:
        hint = f"choose from {', '.join(DISTRIBUTIONS)}"
        raise UsageError(f"{distribution!r} is no distribution", where=flag, hint=hint)
    return [*words[:count], distribution, words[count + 1] if len(words) > count + 1 else ""]


def _below(path: str, subdir: str) -> str:
    return f"{path.rstrip('/')}/{subdir.lstrip('/')}" if subdir else path


def _named(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("is empty")
    return text


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not JSON") from None
