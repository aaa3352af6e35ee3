"""The options of `allranks run`, in one table; other commands take some of them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from allranks.cli.job_names import JobReference
from allranks.cli.parser import duration

if TYPE_CHECKING:
    from allranks.api.common import Document

DISTRIBUTIONS = "pytorch, tensorflow, mpi, deepspeed, horovod, jax, ray or none"
# Of a sweep without --trials and --concurrent.
TRIALS, CONCURRENT = 10, 4
REPEATED: Mapping[str, Any] = {"action": "append", "default": []}


class Option(NamedTuple):
    """``words`` as in `-n/--nodes`; a flag has no ``metavar`` and nothing ``more`` for argparse.
    ``key``: the key of a job file, with dots, that gets the value. ``also``: other keys, whose
    errors name this option; `*` stands for any name."""

    words: str
    help: str
    metavar: str = ""
    parse: Callable[[str], Any] | str = ""
    key: str = ""
    also: str = ""
    attribute: str = ""
    more: Mapping[str, Any] = {}

    @property
    def long(self) -> str:
        return self.words.rpartition("/")[2]

    def value(self, options: argparse.Namespace) -> Any:
        name = self.attribute or self.long.lstrip("-").replace("-", "_")
        return getattr(options, name, None)

    def is_set(self, options: argparse.Namespace) -> bool:
        """Whether somebody gave it."""
        value = self.value(options)
        return value is not None and value is not False and value != []

    @property
    def is_named(self) -> bool:
        """Whether each value begins with a name, which is the last part of the key."""
        return self.more is REPEATED and "=" in self.metavar

    def add_to(self, add: Callable[..., Any], **changes: Any) -> None:
        """Add it to a parser by its ``add_argument``, with ``changes`` of its arguments."""
        words = {"metavar": self.metavar, "type": self.parse, "dest": self.attribute}
        if not self.metavar and not self.more:
            words["action"] = "store_true"
        words |= {"help": self.help, **self.more, **changes}
        add(*self.words.split("/"), **{key: word for key, word in words.items() if word != ""})


def _on_failure(text: str) -> Document:
    """``hold``, ``hold=90``, ``hold=30m`` as the key of a job file."""
    word, equals, time = text.partition("=")
    if word != "hold":
        message = f"{text!r} is not hold or hold=TIME, such as hold=30m"
        raise argparse.ArgumentTypeError(message)
    return {"hold": duration(time) if equals else 1800}


# fmt: off
SECTIONS: Mapping[str, tuple[Option, ...]] = {
    "the job": (
        Option("-n/--nodes", "number of nodes (1)", "N", int, key="resources.instance_count"),
        Option("-p/--procs-per-node", "ranks per node (1)",
               "P", int, also="distribution.process_count_per_instance"),
        Option("--gpus", "GPUs per node (one a rank, if nodes have GPUs)",
               "G", int, key="resources.gpus_per_instance"),
        Option("--cpus", "CPUs per node that the job waits for (none)",
               "C", float, also="resources.properties.*.cpus"),
        Option("--memory", "memory per node, such as 4g; a job that holds more is ended (no limit)",
               "M", also="resources.properties.*.memory"),
        Option("-d/--distribution", f"{DISTRIBUTIONS} (pytorch when N·P > 1)",
               "TYPE", also="distribution"),
        Option("--workers", "tensorflow: workers (one per node)",
               "W", int, also="distribution.worker_count"),
        Option("--parameter-servers", "tensorflow: parameter servers",
               "K", int, also="distribution.parameter_server_count"),
        Option("-C/--code", "folder or file of the code (.)", "DIR", key="code"),
        Option("--in-place", "run in the code folder itself, without copying it"),
        Option("--allow-large-code", "allow a code folder of more than 500 MB or 20,000 files"),
        Option("--allow-large-data", "allow an upload of more than 2 GB or 200,000 files of data"),
        Option("-c/--compute", "where to run (the default compute)", "NAME", key="compute"),
        Option("--in", "run at once on the nodes of a session of `allranks dev`, in its folder",
               "NAME", key="inside", attribute="inside"),
        Option("-e/--environment",
               "the Python environment: NAME[:VERSION], a requirements or conda file (current)",
               "SPEC", also="environment"),
        Option("--allow-builds", "build packages of its file from source, however long that takes"),
        Option("--image", "run in a container of this image", "IMAGE", also="environment.image"),
        Option("--name", "the job's name (generated)", "NAME", key="name"),
        Option("--display-name", "name to show for the job", "TEXT", key="display_name"),
        Option("--experiment", "the experiment (the code folder's name)",
               "NAME", key="experiment_name"),
        Option("--tag", "tag to set (repeat)", "K=V", also="tags", more=REPEATED),
        Option("--max-attempts", "restart the job after a failure, up to A attempts in all (1)",
               "A", int, key="retry.max_attempts"),
        Option("--timeout", "stop the job after this many seconds",
               "TIME", duration, key="limits.timeout", also="limits.trial_timeout"),
        Option("--hang-timeout",
               "stop the job after this long without progress of any rank, and show their stacks "
               "(off)",
               "TIME", duration, key="hang_timeout"),
        Option("--on-failure",
               "when a rank fails, keep all as it is for `allranks job debug`: hold[=30m]",
               "hold[=TIME]", _on_failure, key="on_failure"),
        Option("--state", "keep checkpoints in the state folder of that name, across jobs",
               "NAME", key="state"),
        Option("--from", "start with copies of the outputs and the state of an ended job",
               "JOB", JobReference, attribute="start_from"),
        Option("--keep-work",
               "size limit for saving new files of the working folder (10 GB a node), or all, or "
               "none",
               "SIZE", key="keep_work"),
        Option("--fresh-work",
               "start each attempt with a clean working folder, without files of earlier attempts",
               key="retry.fresh_work"),
        Option("--warm",
               "start ranks from a process that has these modules imported, e.g. torch (repeat)",
               "MODULE,…", also="warm", more=REPEATED),
        Option("--set", "set any key of the job's YAML", "PATH=VALUE", more=REPEATED),
    ),
    "data and variables": (
        Option("-i/--input", "an input; ${{inputs.NAME}} in COMMAND is its path",
               "NAME=PATH[:MODE]", also="inputs", more=REPEATED),
        Option("-o/--output", "an output folder; ${{outputs.NAME}} in COMMAND is its path",
               "NAME[=PATH[:MODE]]", also="outputs", more=REPEATED),
        Option("--env", "an environment variable for the ranks; without a value, yours",
               "KEY[=VALUE]", also="environment_variables", more=REPEATED),
        Option("--env-all", "pass on all your variables except secrets"),
    ),
    "following it": (
        Option("-m/--metric",
               "a metric to read from the output; the group in REGEX matches its number",
               "NAME=REGEX", also="metrics", more=REPEATED),
        Option("--metric-rank", "rank whose output has the metrics (0)",
               "R|all", also="metrics.*.rank"),
        Option("--rank", "print only the output of this rank", "R", int, more={"action": "append"}),
        Option("--detach", "submit the job and return at once"),
        Option("--dry-run", "print the plan without starting anything"),
        Option("--cancel-on-interrupt", "Ctrl-C cancels instead of detaching"),
        Option("--prefix", "print the rank before each line (on a terminal)",
               more={"action": argparse.BooleanOptionalAction}),
        Option("--raw", "print output as the ranks wrote it"),
        Option("--no-fold", "print equal lines of ranks once for each rank"),
        Option("--download", "download its files into DIR when it has ended", "DIR"),
        Option("--rehearse",
               "test that it resumes: kill a rank, compare the metrics with an undisturbed run"),
        Option("--tolerance", "--rehearse: allowed relative difference of metrics (0.001)",
               "PART", float),
    ),
    "a sweep": (
        Option("--sweep",
               "a parameter: NAME=uniform(a,b), loguniform(a,b), choice(x,y,…), randint(n), "
               "normal(mu,sigma) or a q… of these; ${{search_space.NAME}} in COMMAND is its value. "
               "Or a YAML file",
               "NAME=SPACE", more=REPEATED),
        Option("--trials", f"number of trials ({TRIALS}; of a grid all)",
               "N", int, also="limits.max_total_trials"),
        Option("--concurrent", f"trials at a time ({CONCURRENT})",
               "C", int, also="limits.max_concurrent_trials"),
        Option("--maximize", "the metric that compares trials; higher is better", "METRIC"),
        Option("--minimize", "the metric that compares trials; lower is better", "METRIC"),
        Option("--sampler", "how parameters are chosen (random)",
               also="sampling_algorithm",
               more={"choices": ("random", "sobol", "grid", "bayesian", "asha")}),
        Option("--seed", "make the choice of parameters repeatable",
               "S", int, also="sampling_algorithm.seed"),
        Option("--stop-early", "stop trials that fall behind",
               also="early_termination", more={"choices": ("bandit", "median", "truncation")}),
        Option("--no-reuse-nodes",
               "on a cluster, queue each trial by itself instead of on the nodes of those before"),
    ),
}
# fmt: on
OPTIONS: Mapping[str, Option] = {row.long: row for rows in SECTIONS.values() for row in rows}


def take(add: Callable[..., Any], name: str, **changes: Any) -> None:
    """Add the option of that name to another command, with ``changes`` of its arguments."""
    OPTIONS[name].add_to(add, **changes)


def keys_of(options: argparse.Namespace) -> Document:
    """The keys of a job file that have the value of one option each."""
    spec: Document = {}
    for option in OPTIONS.values():
        if option.key and option.is_set(options):
            section, _, key = option.key.rpartition(".")
            (spec.setdefault(section, {}) if section else spec)[key] = option.value(options)
    return spec


def _matches(pattern: str, name: str) -> bool:
    return pattern in ("*", name)


def option_for(key: str) -> tuple[Option, str] | None:
    """The option that sets this key, or the nearest one above it, and what is below that."""
    parts = key.split(".")
    for count in range(len(parts), 0, -1):
        for option in OPTIONS.values():
            for pattern in f"{option.key} {option.also}".split():
                names = pattern.split(".")
                if len(names) == count and all(map(_matches, names, parts)):
                    return option, ".".join(parts[count:])
    return None
