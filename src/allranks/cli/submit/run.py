"""`allranks run`: one line, one job."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from allranks.cli.job.follow import Viewer, exit_code, verdict
from allranks.cli.job_names import JobReference
from allranks.cli.output import show
from allranks.cli.submit.overrides import override
from allranks.cli.submit.send import large_code_option, print_carried, submit, with_shell_variables
from allranks.errors import UsageError
from allranks.masking import PASSED_ON
from allranks.sdk.connection import find_server
from allranks.sdk.connection.urls import job_path
from allranks.sdk.submit.current_environment import asked_for
from allranks.spec.fields.python_forms import environment_reference, joined

_OUTPUTS = ("rw_mount", "upload", "direct")
_MODES = ("ro_mount", "download", "direct", "stream")
# Files that an environment may be written in.
_FILES = (".txt", ".yml", ".yaml")


def run_options(parser: argparse.ArgumentParser) -> None:
    parser.usage = "allranks run [OPTIONS] -- COMMAND…"
    _what(parser.add_argument_group("the job").add_argument)
    _data(parser.add_argument_group("data and variables").add_argument)
    _how(parser.add_argument_group("following it").add_argument)
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def _what(add: Callable[..., Any]) -> None:
    add("-n", "--nodes", type=int, default=1, metavar="N", help="how many nodes (1)")
    add("-p", "--procs-per-node", type=int, default=1, metavar="P", help="ranks on each (1)")
    add("--gpus", type=int, metavar="G", help="GPUs of each node (one a rank, where it has some)")
    kinds = "pytorch, tensorflow, mpi, deepspeed, horovod, jax, ray or none (pytorch when N·P > 1)"
    add("-d", "--distribution", metavar="TYPE", help=kinds)
    add("--workers", type=int, metavar="W", help="tensorflow: workers (one a node)")
    add("--parameter-servers", type=int, metavar="K", help="tensorflow: parameter servers")
    add("-C", "--code", default=".", metavar="DIR", help="folder or file of the code (.)")
    add("--in-place", action="store_true", help="run in that folder itself, copy nothing")
    large_code_option(add)
    add("-c", "--compute", metavar="NAME", help="where to run (the default compute)")
    environment = "the Python environment: NAME[:VERSION], a requirements or conda file (current)"
    add("-e", "--environment", metavar="SPEC", help=environment)
    add("--image", metavar="IMAGE", help="in a container of this image instead")
    add("--name", help="the job's name (made up)")
    add("--display-name", metavar="TEXT", help="name to show for the job")
    add("--experiment", metavar="NAME", help="the experiment (the code folder's name)")
    add("--tag", action="append", default=[], metavar="K=V", help="tag to set (repeat)")
    again = "start again after a failure, A attempts in all (1)"
    add("--max-attempts", type=int, metavar="A", help=again)
    add("--timeout", type=float, metavar="SECONDS", help="end it after so long")
    hang = "end it when no rank makes progress for so long, and say where each was (off)"
    add("--hang-timeout", type=float, metavar="SECONDS", help=hang)
    state = "find again what jobs before it kept in the state folder of that name"
    add("--state", metavar="NAME", help=state)
    start = "start from copies of the outputs and the state that an ended job left"
    add("--from", dest="start_from", type=JobReference, metavar="JOB", help=start)
    keep = "how much new files of the working folder may take (10 GB a node), all, or none"
    add("--keep-work", metavar="SIZE", help=keep)
    # Of the contract, not built yet: refused by name by the plan, not as a word never heard of.
    add("--warm", help=argparse.SUPPRESS)
    sets = "set any key of the job's YAML"
    add("--set", action="append", default=[], metavar="PATH=VALUE", help=sets)


def _data(add: Callable[..., Any]) -> None:
    data = "an input; ${{inputs.NAME}} in COMMAND stands for it"
    add("-i", "--input", action="append", default=[], metavar="NAME=PATH[:MODE]", help=data)
    results = "an output folder; ${{outputs.NAME}} stands for it"
    add("-o", "--output", action="append", default=[], metavar="NAME[=PATH[:MODE]]", help=results)
    variable = "a variable for the ranks; without a value, yours"
    add("--env", action="append", default=[], metavar="KEY[=VALUE]", help=variable)
    add("--env-all", action="store_true", help="all your variables but what looks secret")


def _how(add: Callable[..., Any]) -> None:
    number = "a number to read from the output: its pattern has a group around it"
    add("-m", "--metric", action="append", default=[], metavar="NAME=REGEX", help=number)
    add("--metric-rank", metavar="R|all", help="whose output metrics are read from (0)")
    add("--rank", action="append", type=int, metavar="R", help="print only this rank's output")
    add("--detach", action="store_true", help="submit and return")
    add("--dry-run", action="store_true", help="print the plan, start nothing")
    interrupt = "Ctrl-C cancels instead of detaching"
    add("--cancel-on-interrupt", action="store_true", help=interrupt)
    marks = "rank names before lines (on a terminal)"
    add("--prefix", action=argparse.BooleanOptionalAction, help=marks)
    rehearsal_options(add)


def rehearsal_options(add: Callable[..., Any]) -> None:
    again = "try that it goes on from its checkpoints: kill a rank, compare with one left alone"
    add("--rehearse", action="store_true", help=again)
    differ = "--rehearse: what values may differ by, relative (0.001)"
    add("--tolerance", type=float, metavar="PART", help=differ)


def run(options: argparse.Namespace) -> int:
    """Submit, follow, and exit with the job's code."""
    spec = with_shell_variables(override(spec_of(options), options.set))
    base = Path.cwd()
    if options.rehearse or options.tolerance is not None:
        from allranks.cli.submit.rehearse import rehearse  # lazy: few runs are rehearsals

        return rehearse(options, spec, base, follow="--detach" if options.detach else "")
    if options.rank:
        from allranks.cli.job.logs import expect_ranks  # lazy: most want to see all of them

        expect_ranks(spec, options.rank)
    note = (
        (lambda sentence: None)
        if options.quiet
        else (lambda sentence: show.talk(f"note: {sentence}"))
    )
    if options.dry_run:
        from allranks.cli.submit.dry_run import dry_run  # lazy: compiling imports the models

        large = options.allow_large_code
        return dry_run(spec, base, in_place=options.in_place, json=options.json, allow_large=large)
    return after_submit(
        submit(options, spec, base, note, options.start_from),
        detach=options.detach,
        json=options.json,
        quiet=options.quiet,
        ranks=options.rank,
        cancel=options.cancel_on_interrupt,
        prefixed=options.prefix,
    )


def after_submit(
    job: dict[str, Any],
    *,
    detach: bool,
    json: bool,
    quiet: bool,
    ranks: list[int] | None = None,
    cancel: bool = False,
    prefixed: bool | None = None,
    own_code: bool = True,
) -> int:
    """Say what was made; follow it unless told to leave it alone."""
    name = job["name"]
    if not quiet:
        for note in job.get("notes", ()):
            show.talk(f"note: {note}")
        print_carried(job)
    if detach:
        show.as_json(job) if json else print(name)
        if not json and not quiet:
            show.talk(f"follow it: allranks job stream {name}")
        return 0
    if not quiet:
        show.talk(f"{name}: {show.size(job)}")
        for note in job["environment"].get("notes", ()):
            show.talk(f"note: {note}")
    viewer = Viewer(
        name, nodes=job["nodes"], ranks=ranks, quiet=quiet, json=json, prefixed=prefixed
    )
    if cancel:
        # What ends this command from outside is to end the job as Ctrl-C does.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        ended = _followed(viewer, name, cancel)
    except KeyboardInterrupt:
        said = "is being canceled" if cancel else "goes on without you"
        hint = f"allranks job stream {name} to follow, allranks job cancel {name} to end it"
        show.talk(f"\n{name} {said}\n\nhint: {hint}")
        return 130
    verdict(ended, quiet=quiet)
    if json:
        show.as_json(ended)
    return exit_code(ended) if own_code else int(exit_code(ended) != 0)


def _followed(viewer: Viewer, name: str, cancel: bool) -> dict[str, Any]:
    try:
        return viewer.follow()
    except KeyboardInterrupt:
        if not cancel:
            raise
    show.talk(f"\ncanceling {name}; Ctrl-C again does not wait for its end")
    find_server.connect().json("POST", job_path(name, "/cancel"))
    return viewer.follow()


def spec_of(options: argparse.Namespace) -> dict[str, Any]:
    """The job's YAML, as a dictionary, of what was typed."""
    words = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not any(words[:1]):
        raise UsageError(
            "there is no command to run", where="COMMAND", hint="allranks run -- python train.py"
        )
    spec: dict[str, Any] = {
        "command": joined(words),
        "code": options.code,
        "resources": {"instance_count": options.nodes},
        "inputs": _once(map(_input, options.input), "-i/--input"),
        "outputs": _once(map(_output, options.output), "-o/--output"),
        "environment_variables": asked_for(options.env, options.env_all),
        "tags": dict(_pair(each, "--tag") for each in options.tag),
        "limits": {"timeout": options.timeout} if options.timeout is not None else None,
        "retry": {"max_attempts": options.max_attempts}
        if options.max_attempts is not None
        else None,
        "name": options.name,
        "display_name": options.display_name,
        "experiment_name": options.experiment,
        "compute": options.compute,
        "environment": _environment(options),
        "distribution": _distribution(options),
    }
    passed = [name for name in options.env if "=" not in name]
    if passed:
        spec["properties"] = {PASSED_ON: ",".join(passed)}
    if options.metric:
        spec["metrics"] = _metrics(options)
    if options.warm:
        spec["warm"] = options.warm.split(",")
    spec["state"], spec["hang_timeout"] = options.state, options.hang_timeout
    spec["keep_work"] = options.keep_work
    if len(words) == 1 and " " in words[0] and not options.quiet:
        show.talk("note: the command is one word with blanks; a shell line is `bash -c '…'`")
    if options.gpus is not None:
        spec["resources"]["gpus_per_instance"] = options.gpus
    return {key: value for key, value in spec.items() if value not in (None, {})}


def _metrics(options: argparse.Namespace) -> dict[str, Any]:
    from allranks.spec.fields.patterns import BUILTIN, KNOWN  # lazy: most runs ask for none

    pairs = []
    for text in options.metric:
        known = text in KNOWN
        if not known and "=" not in text:
            names = ", ".join(KNOWN)
            raise UsageError(
                f"{text!r} is not NAME=REGEX",
                where="-m/--metric",
                hint=rf"e.g. -m loss='loss: ([0-9.]+)'; known without a pattern: {names}",
            )
        pairs.append((text, BUILTIN) if known else _pair(text, "--metric"))
    found = _once(pairs, "-m/--metric")
    if options.metric_rank is None:
        return found
    rank = options.metric_rank
    rank = int(rank) if rank.isdecimal() else rank
    return {name: {"pattern": pattern, "rank": rank} for name, pattern in found.items()}


def _environment(options: argparse.Namespace) -> str | dict[str, Any] | None:
    if options.image is None:
        given: str | None = options.environment
        if given is not None and given.lower().endswith(_FILES):
            return _of_file(Path(given))
        if given is not None and "/" in given and not given.startswith("azureml:"):
            raise UsageError(
                f"{given!r} is neither a file nor a name of an environment",
                where="-e/--environment",
                hint="a requirements file (.txt), a conda file (.yml), or NAME[:VERSION]",
            )
        return given if given is None else environment_reference(given)
    if options.environment is not None:
        raise UsageError(
            "--environment and --image exclude each other",
            where="--image",
            hint="an image is an environment; keep one of the two",
        )
    return {"image": options.image}


def _of_file(file: Path) -> dict[str, Any]:
    from allranks.sdk.submit.environment_files import from_file  # lazy: few name a file

    return from_file(file)


def _distribution(options: argparse.Namespace) -> dict[str, Any] | None:
    kind = options.distribution
    if kind is None:
        kind = "pytorch" if options.nodes * options.procs_per_node > 1 else "none"
    kind = kind.lower()
    if kind != "tensorflow" and (options.workers or options.parameter_servers):
        raise UsageError(
            "--workers and --parameter-servers are TensorFlow's",
            where="--distribution",
            hint="add -d tensorflow, or leave them out",
        )
    if options.procs_per_node > 1:
        _hold_to_one_each(kind)
    if kind == "none":
        if options.procs_per_node == 1:
            return None
        return {"type": "none", "process_count_per_instance": options.procs_per_node}
    if kind != "tensorflow":
        return {"type": kind, "process_count_per_instance": options.procs_per_node}
    counts = {"worker_count": options.workers, "parameter_server_count": options.parameter_servers}
    return {"type": kind, **{name: count for name, count in counts.items() if count is not None}}


def _hold_to_one_each(kind: str) -> None:
    # lazy: most runs need nothing of the plan
    from allranks.plan.distributions.topology import ONE_EACH

    if kind in ONE_EACH:
        raise UsageError(
            f"{kind} starts one process a node",
            where="-p/--procs-per-node",
            hint="ask for more nodes with -n, or leave -p out",
        )


def _once(pairs: Iterable[tuple[str, Any]], option: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise UsageError(f"{name!r} is given twice", where=option, hint="each needs its name")
        found[name] = value
    return found


def _input(text: str) -> tuple[str, Any]:
    name, value = _pair(text, "-i/--input")
    head, mode = _moded(value, _MODES, "-i/--input")
    mode = mode or "ro_mount"
    if not head:
        hint = "name a path: `.` is the folder that you are in"
        raise UsageError(f"the input {name} has no path", where="-i/--input", hint=hint)
    path = Path(head).expanduser()
    if _is_literal(head) and not path.exists():
        hint = f"a path is meant; a number is given by --set inputs.{name}={head}"
        if "." in name:
            hint = "a path is meant; a number of a name with a dot has its place in a job file"
        raise UsageError(f"there is no {head!r} here", where=f"-i {name}", hint=hint)
    kind = "uri_file" if path.is_file() else "uri_folder"
    return name, {"type": kind, "path": head, "mode": mode}


def _is_literal(word: str) -> bool:
    with suppress(ValueError):
        float(word)
        return True
    return word.lower() in ("true", "false")


def _output(text: str) -> tuple[str, Any]:
    name, given, path = text.partition("=")
    if not given:
        return name, {"type": "uri_folder"}
    head, mode = _moded(path, _OUTPUTS, "-o/--output")
    return name, {"path": head, "mode": mode} if mode else {"path": path}


def _moded(value: str, modes: Sequence[str], option: str) -> tuple[str, str]:
    """A path and the mode behind it, if there is one. What looks like one and is none, of a path
    that is not there, is a slip."""
    head, colon, word = value.rpartition(":")
    mode = word.replace("-", "_").lower()
    if colon and mode in modes:
        return head, mode
    if colon and head and _looks_like_a_mode(mode) and not Path(value).expanduser().exists():
        hint = f"modes here are {', '.join(modes)}; a path may end so if it is there"
        raise UsageError(f"{word!r} is no mode of an {option[5:]}", where=option, hint=hint)
    return value, ""


def _looks_like_a_mode(word: str) -> bool:
    from difflib import get_close_matches  # lazy: few paths have a colon

    known = (*_MODES, *_OUTPUTS)
    return word in known or bool(get_close_matches(word, known, cutoff=0.7))


def _pair(text: str, option: str) -> tuple[str, str]:
    name, given, value = text.partition("=")
    if not given or not name:
        raise UsageError(
            f"{text!r} is not NAME=VALUE",
            where=option,
            hint=f"e.g. {option.partition('/')[0]} name=value",
        )
    return name, value
