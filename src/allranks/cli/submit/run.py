"""`allranks run`: run a command as a job."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import stat
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allranks.cli.output import show
from allranks.cli.parser import refuse_with
from allranks.cli.run_options import DISTRIBUTIONS, SECTIONS, keys_of
from allranks.cli.submit.send import (
    after_submit,
    note_outputs,
    outputs_here,
    submit,
)
from allranks.errors import SpecError, UsageError
from allranks.masking import PASSED_ON
from allranks.sdk.submit.current_environment import asked_for
from allranks.sdk.submit.shell_variables import with_shell_variables
from allranks.spec.fields.python_forms import environment_reference

if TYPE_CHECKING:
    from allranks.api.common import Document

_OUTPUT_MODES = ("rw_mount", "upload", "direct")
_INPUT_MODES = ("ro_mount", "download", "direct", "stream")
_ENVIRONMENT_FILES = (".txt", ".yml", ".yaml")


def run_options(parser: argparse.ArgumentParser) -> None:
    parser.usage = "allranks run [OPTIONS] -- COMMAND…"
    for section, options in SECTIONS.items():
        add = parser.add_argument_group(section).add_argument
        for option in options:
            option.add_to(add)
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    """Submit, follow, and exit with the job's code."""
    try:
        return _run(options)
    except SpecError as error:
        from allranks.cli.submit.option_words import in_option_words  # lazy: only for errors

        raise in_option_words(error, options) from None


def _run(options: argparse.Namespace) -> int:
    if options.inside is not None:
        from allranks.cli.submit.inside import fill_from_session  # lazy: few runs are in a session

        fill_from_session(options)
    else:
        options.nodes = 1 if options.nodes is None else options.nodes
        options.procs_per_node = 1 if options.procs_per_node is None else options.procs_per_node
        options.code = "." if options.code is None else options.code
    spec = spec_of(options)
    if options.set:
        from allranks.cli.submit.overrides import override  # lazy: few runs set keys

        override(options, spec)
    spec = with_shell_variables(spec)
    base = Path.cwd()
    is_sweep = any(option.is_set(options) for option in SECTIONS["a sweep"])
    if is_sweep:
        from allranks.cli.submit.sweep import require_sweep, sweep_spec  # lazy: few are sweeps

        require_sweep(options)
        no_trial = {"--rehearse": options.rehearse, "--from": options.start_from}
        refuse_with("--sweep", {**no_trial, **_views(options)})
        spec = sweep_spec(spec, options)
    if options.download is not None:
        from allranks.cli.job.download import require_free  # lazy: few are downloaded at once

        others = ("detach", "rehearse", "dry_run")
        given = [f"--{name.replace('_', '-')}" for name in others if getattr(options, name)]
        require_free(options.download, f"leave out {given[0]}" if given else "")
    if options.detach:
        followed = {"--cancel-on-interrupt": options.cancel_on_interrupt}
        refuse_with("--detach", {**followed, **_views(options)})
    if options.rehearse or options.tolerance is not None:
        from allranks.cli.submit.rehearse import rehearse  # lazy: few runs are rehearsals

        return rehearse(options, spec, base, conflict="--detach" if options.detach else "")
    if options.rank:
        from allranks.cli.job.logs import expect_ranks  # lazy: few runs choose ranks

        expect_ranks(spec, options.rank)
    if options.dry_run:
        from allranks.cli.submit.dry_run import dry_run  # lazy: imports the server's models

        large = options.allow_large_code
        return dry_run(spec, base, in_place=options.in_place, json=options.json, allow_large=large)
    spec, outputs = outputs_here(spec, base)
    made = submit(options, spec, base, options.start_from)
    if options.detach:
        note_outputs(made, outputs)
    return after_submit(
        options,
        made,
        outputs=outputs,
        detach=options.detach,
        ranks=options.rank,
        cancel=options.cancel_on_interrupt,
        prefixed=options.prefix,
        raw=options.raw,
        fold=not options.no_fold,
        logs=not is_sweep,
    )


def _views(options: argparse.Namespace) -> Mapping[str, object]:
    """The options for how output is printed."""
    prefix = "--prefix" if options.prefix is not False else "--no-prefix"
    return {
        "--rank": options.rank,
        "--raw": options.raw,
        "--no-fold": options.no_fold,
        prefix: options.prefix is not None,
    }


def _has_input() -> bool:
    """Whether something is piped in, or stdin is a file that has content."""
    try:
        info = os.fstat(0)
        if stat.S_ISREG(info.st_mode):
            return info.st_size > os.lseek(0, 0, os.SEEK_CUR)
        if not stat.S_ISFIFO(info.st_mode):
            return False
        import fcntl  # lazy: few submit from a pipe
        import struct
        import termios

        (waiting,) = struct.unpack("i", fcntl.ioctl(0, termios.FIONREAD, b"\0" * 4))
    except OSError:
        return False
    return bool(waiting)


def spec_of(options: argparse.Namespace) -> Document:
    """The job that the options describe, with the keys of a job file."""
    words = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not any(words[:1]):
        hint = "allranks run -- python train.py"
        raise UsageError("no command to run", where="COMMAND", hint=hint)
    if len(words) == 1 and len(words[0].split()) > 1 and not options.quiet:
        text = "one quoted word, so the name of one program; leave out the quotes, or write"
        show.talk(f"note: the command is {text} `bash -c '…'`")
    if not options.quiet and _has_input():
        what = "standard input is not passed on; make it a file: -i NAME=PATH"
        show.talk(f"note: {what}, or `bash -c '… <PATH'`")
    passed = [name for name in options.env if "=" not in name]
    for name in ("compute", "code", "experiment", "display_name"):
        if getattr(options, name) == "":  # `-c "$UNSET"` is not the default compute
            where = f"--{name.replace('_', '-')}"
            raise UsageError("must not be empty", where=where, hint="leave it out, or give one")
    spec: Document = {
        "command": shlex.join(words),
        **keys_of(options),
        "resources": resources_of(options),
        "inputs": _unique(map(_input, options.input), "-i/--input"),
        "outputs": _unique(map(_output, options.output), "-o/--output"),
        "environment_variables": asked_for(options.env, options.env_all),
        "properties": {PASSED_ON: ",".join(passed)} if passed else None,
        "tags": _unique((_pair(text, "--tag") for text in options.tag), "--tag"),
        "environment": environment_of(options),
        "distribution": _distribution(options),
        "metrics": _metrics(options),
        "warm": ",".join(options.warm).split(",") if options.warm else None,
    }
    return {key: value for key, value in spec.items() if value not in (None, {})}


def resources_of(options: argparse.Namespace) -> Document:
    resources: Document = keys_of(options).get("resources", {})
    own = _present(cpus=options.cpus, memory=options.memory)
    if own:
        from allranks.engines.registry import KINDS  # lazy: few runs need it

        # Only the server knows which engine the compute has; all have these options.
        resources["properties"] = dict.fromkeys(KINDS, own)
    return resources


def _present(**values: Any) -> Document:
    return {key: value for key, value in values.items() if value is not None}


def _metrics(options: argparse.Namespace) -> Document:
    if not options.metric:
        if options.metric_rank is not None:
            hint = "add -m NAME=REGEX, or leave it out"
            raise UsageError("--metric-rank needs -m", where="--metric-rank", hint=hint)
        return {}
    from allranks.spec.fields.metric_formats import BUILTIN, KNOWN  # lazy: few runs need them

    pairs = []
    for text in options.metric:
        if text not in KNOWN and "=" not in text[1:]:
            hint = "e.g. -m loss='loss: ([0-9.]+)'; built in, without a pattern: "
            hint += ", ".join(KNOWN)
            raise UsageError(f"{text!r} is not NAME=REGEX", where="-m/--metric", hint=hint)
        pairs.append((text, BUILTIN) if text in KNOWN else _metric(text))
    patterns = _unique(pairs, "-m/--metric")
    if options.metric_rank is None:
        return patterns
    rank = int(options.metric_rank) if options.metric_rank.isdecimal() else options.metric_rank
    return {name: {"pattern": pattern, "rank": rank} for name, pattern in patterns.items()}


def _metric(text: str) -> tuple[str, str]:
    """Name and pattern. The name ends at the first `=` outside brackets, as in AP[IoU=0.5]=(…)."""
    bracketed = re.match(r"(?:[^\[=]|\[[^\]]*\])+(?==)", text)
    if bracketed is None:
        return _pair(text, "-m/--metric")
    return bracketed[0], text[bracketed.end() + 1 :]


def environment_of(options: argparse.Namespace) -> str | Document | None:
    name: str | None = options.environment
    if options.allow_builds and not (name or "").lower().endswith(_ENVIRONMENT_FILES):
        raise UsageError(
            "--allow-builds needs a requirements or conda file",
            where="--allow-builds",
            hint="-e FILE; for a named environment: allranks environment build NAME --allow-builds",
        )
    if options.image is not None:
        refuse_with("--image", {"-e/--environment": name})
        return {"image": options.image}
    if name is None:
        return None
    if name.lower().endswith(_ENVIRONMENT_FILES):
        from allranks.sdk.submit.environment_files import from_file  # lazy: reads YAML

        allowed = {"allow_builds": True} if options.allow_builds else {}
        return {**from_file(Path(name)), **allowed}
    if "/" in name and not name.startswith("azureml:"):
        hint = "a requirements file (.txt), a conda file (.yml), or NAME[:VERSION]"
        message = f"{name!r} is neither a file nor the name of an environment"
        raise UsageError(message, where="-e/--environment", hint=hint)
    return environment_reference(name)


def _distribution(options: argparse.Namespace) -> Document | None:
    kind = options.distribution
    if kind is None:
        kind = "pytorch" if options.nodes * options.procs_per_node > 1 else "none"
    if kind.lower() not in re.findall(r"\w+", DISTRIBUTIONS):
        import shutil  # lazy: it imports modules for compression

        if shutil.which(kind) or Path(kind).is_file():
            message = f"{kind!r} is a program, not a type"
            hint = "put `--` before the command; to submit the job and return at once: `--detach`"
            raise UsageError(message, where="-d/--distribution", hint=hint)
    kind = kind.lower()
    if kind != "tensorflow" and (options.workers, options.parameter_servers) != (None, None):
        hint = "add -d tensorflow, or remove them"
        message = "--workers and --parameter-servers need TensorFlow"
        raise UsageError(message, where="--distribution", hint=hint)
    if options.procs_per_node > 1:
        from allranks.core.distributions.topology import ONE_EACH  # lazy: few runs need the plan

        if kind in ONE_EACH:
            hint = "request more nodes with -n, or leave -p out"
            message = f"{kind} starts one process per node"
            raise UsageError(message, where="-p/--procs-per-node", hint=hint)
    if kind == "tensorflow":
        workers, servers = options.workers, options.parameter_servers
        return {"type": kind, **_present(worker_count=workers, parameter_server_count=servers)}
    if kind == "none" and options.procs_per_node == 1:
        return None
    return {"type": kind, "process_count_per_instance": options.procs_per_node}


def _unique(pairs: Iterable[tuple[str, Any]], option: str) -> Document:
    values: Document = {}
    for name, value in pairs:
        if name in values:
            hint = "use each name once"
            raise UsageError(f"{name!r} is given twice", where=option, hint=hint)
        values[name] = value
    return values


def _input(text: str) -> tuple[str, Any]:
    name, value = _pair(text, "-i/--input")
    address, mode = _split_mode(value, _INPUT_MODES, "-i/--input")
    if not address:
        hint = "name a path; `.` is the current folder"
        raise UsageError(f"the input {name} has no path", where="-i/--input", hint=hint)
    path = Path(address).expanduser()
    if _is_literal(address) and not path.exists():
        hint = f"-i takes a path; for a number use --set inputs.{name}={address}"
        if "." in name:
            hint = "-i takes a path; a number whose name has a dot needs a job file"
        raise UsageError(f"no file or folder {address!r}", where=f"-i {name}", hint=hint)
    kind = "uri_file" if path.is_file() else "uri_folder"
    return name, {"type": kind, "path": address, "mode": mode or "ro_mount"}


def _is_literal(word: str) -> bool:
    with suppress(ValueError):
        float(word)
        return True
    return word.lower() in ("true", "false")


def _output(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        return name, {"type": "uri_folder"}
    path, mode = _split_mode(value, _OUTPUT_MODES, "-o/--output")
    if not path:
        hint = f"leave out `=`, or name a path: -o {name}=results"
        raise UsageError(f"the output {name} has no path", where="-o/--output", hint=hint)
    return name, {"path": path, "mode": mode} if mode else {"path": value}


def _split_mode(value: str, modes: Sequence[str], option: str) -> tuple[str, str]:
    """A path, and its mode or "". Raises UsageError for a misspelt mode, unless the whole value is
    an existing path."""
    path, colon, word = value.rpartition(":")
    mode = word.replace("-", "_").lower()
    if colon and mode in modes:
        return path, mode
    if colon and path and _looks_like_mode(mode) and not Path(value).expanduser().exists():
        hint = f"modes: {', '.join(modes)}; only an existing path may end like a mode"
        kind = option.rpartition("-")[2]
        raise UsageError(f"{word!r} is not a mode of an {kind}", where=option, hint=hint)
    return value, ""


def _looks_like_mode(word: str) -> bool:
    from difflib import get_close_matches  # lazy: few paths have a colon

    modes = (*_INPUT_MODES, *_OUTPUT_MODES)
    return word in modes or bool(get_close_matches(word, modes, cutoff=0.7))


def _pair(text: str, option: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        hint = f"e.g. {option.partition('/')[0]} {text.strip('=') or 'name'}=value"
        raise UsageError(f"{text!r} is not NAME=VALUE", where=option, hint=hint)
    return name, value
