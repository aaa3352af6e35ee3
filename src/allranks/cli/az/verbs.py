"""The verbs of `az ml` and what each means here. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from enum import Enum, auto
from typing import Any, NamedTuple

from allranks.errors import UsageError


class Takes(Enum):
    """What follows an option: nothing, one value, or values up to the next option."""

    NOTHING = auto()
    ONE = auto()
    SEVERAL = auto()


class Option(NamedTuple):
    """``ours`` is the option of ours that it becomes; empty: it stands before the others, as the
    name does; None: it changes nothing here."""

    flags: tuple[str, ...]
    ours: str | None
    takes: Takes = Takes.ONE


class Verb(NamedTuple):
    """``ours`` is our command, with the ``words`` after it."""

    ours: str
    options: tuple[Option, ...] = ()
    words: tuple[str, ...] = ()


class Line(NamedTuple):
    """A line of az's, read: the ``words`` of our command, and how the answer is shown.
    ``values`` has what az alone does, by flag."""

    noun: str
    verb: str
    words: tuple[str, ...]
    output: str = "json"
    query: str = ""
    values: Mapping[str, Any] = {}


# The options of every line: where the workspace is, which is here.
_WHERE = (
    "-g --resource-group",
    "-w --workspace-name",
    "--subscription",
    "--registry-name",
)
_QUIET = ("--debug", "--verbose", "--only-show-errors", "--no-wait", "-y", "--yes")
_OUTPUTS = ("json", "jsonc", "tsv", "table", "yaml", "yamlc", "none")


def _o(flags: str, ours: str | None, takes: Takes = Takes.ONE) -> Option:
    return Option(tuple(flags.split()), ours, takes)


_NAME = _o("-n --name", "")
_FILE = _o("-f --file", "-f")
_VERSION = _o("-v --version", "@version")
_LABEL = _o("-l --label", "@label")
_SET = _o("--set", "--set", Takes.SEVERAL)
# `--add tags a=b` and `--remove tags.a` are `--set tags.a=b` and `--set tags.a=null`.
_ADD, _REMOVE = _o("--add", "--set", Takes.SEVERAL), _o("--remove", "--set", Takes.SEVERAL)
_PATH = _o("-p --download-path", "-p")
_MADE = (
    _FILE,
    _NAME,
    _o("-v --version", "--version"),
    _o("--description", "--description"),
)
_FROM_PATH = (*_MADE, _o("--path", "--path"), _o("-t --type", "--type"))
# Nothing is archived here but jobs.
_LISTED = (_NAME, _o("-r --max-results", None), _o("--include-archived", None, Takes.NOTHING))
_SHOWN = (_NAME, _VERSION, _LABEL)
# Endpoints and deployments are named by options alone.
_E_NAME = _o("-n --name", "--name")
_OF = _o("-e --endpoint-name", "-e")
_LOCAL = _o("--local", None, Takes.NOTHING)
_YES = _o("-y --yes", "--yes", Takes.NOTHING)
_INVOKED_LOCALLY = _o("--local", "--local", Takes.NOTHING)
_INVOKED = _o("-d --deployment-name --deployment", "-d")
_BATCH = ("--type", "batch")
_OF_INVOCATIONS = (
    "--input",
    "--input-type",
    "--output-path",
    "--job-name",
    "--experiment-name",
)
_SIZES = ("--size", "--tier", "--min-instances", "--max-instances", "--idle-time-before-scale-down")

VERBS: Mapping[str, Verb] = {
    "job create": Verb(
        "job create",
        (
            _FILE,
            _o("-n --name", "--name"),
            _SET,
            _o("-s --stream", None, Takes.NOTHING),
            _o("-e --web", None, Takes.NOTHING),
            _o("-a --save-as", None),
            _o("--skip-validation", None, Takes.NOTHING),
        ),
    ),
    "job validate": Verb("job validate", (_FILE, _SET)),
    "job show": Verb("job show", (_NAME, _o("-e --web", None, Takes.NOTHING))),
    "job list": Verb(
        "job list",
        (
            _o("-r --max-results", "--limit"),
            _o("-p --parent-job-name", "--parent"),
            _o("--all-results", None),
            _o("--archived-only", "--archived", Takes.NOTHING),
            _o("--include-archived", "--all", Takes.NOTHING),
        ),
    ),
    "job stream": Verb("job stream", (_NAME,)),
    "job cancel": Verb("job cancel", (_NAME,)),
    "job archive": Verb("job archive", (_NAME,)),
    "job restore": Verb("job restore", (_NAME,)),
    "job update": Verb("job tag", (_NAME, _o("--set", None, Takes.SEVERAL))),
    "job download": Verb(
        "job download",
        (_NAME, _o("--all", "--all", Takes.NOTHING), _o("--output-name", "--output-name"), _PATH),
    ),
    "job show-services": Verb("job show", (_NAME, _o("-i --node-index", None))),
    "job connect-ssh": Verb(
        "job ssh-config",
        (_NAME, _o("-i --node-index", "--node"), _o("-f --private-key-file-path", None)),
    ),
    "environment create": Verb(
        "environment create",
        (*_MADE, _o("-i --image", "--image"), _o("-c --conda-file", "--conda-file"), _SET),
    ),
    "environment list": Verb("environment list", _LISTED),
    "environment show": Verb("environment show", _SHOWN),
    "data create": Verb("data create", (*_FROM_PATH, _SET)),
    "data list": Verb("data list", _LISTED),
    "data show": Verb("data show", _SHOWN),
    "model create": Verb("model create", (*_FROM_PATH, _o("--tags", "--tag", Takes.SEVERAL), _SET)),
    "model list": Verb("model list", _LISTED),
    "model show": Verb("model show", _SHOWN),
    "model download": Verb("model download", (*_SHOWN, _PATH)),
    "component create": Verb(
        "component create", (_FILE, _NAME, _o("-v --version", "--version"), _SET)
    ),
    "component list": Verb("component list", _LISTED),
    "component show": Verb("component show", _SHOWN),
    "compute create": Verb(
        "compute create",
        (_FILE, _NAME, _SET, _o("-t --type", "--type"), *(_o(each, each) for each in _SIZES)),
    ),
    "compute list": Verb("compute list", (_o("-t --type", None), _o("-r --max-results", None))),
    "compute show": Verb("compute show", (_NAME,)),
    "compute delete": Verb("compute delete", (_NAME, _YES)),
    "datastore create": Verb("datastore create", (_FILE, _NAME)),
    "datastore list": Verb("datastore list", (_o("-r --max-results", None),)),
    "datastore show": Verb("datastore show", (_NAME,)),
    "online-endpoint create": Verb(
        "endpoint create", (_FILE, _NAME, _o("--auth-mode", "--auth-mode"), _SET, _LOCAL)
    ),
    "online-endpoint list": Verb("endpoint list", (_LOCAL,)),
    "online-endpoint show": Verb("endpoint show", (_NAME, _LOCAL)),
    "online-endpoint update": Verb(
        "endpoint update",
        (
            *(_NAME, _SET, _LOCAL, _o("--traffic", "--traffic")),
            _o("--mirror-traffic", "--mirror-traffic"),
        ),
    ),
    "online-endpoint invoke": Verb(
        "endpoint invoke", (_NAME, _o("-r --request-file", "-r"), _INVOKED, _INVOKED_LOCALLY)
    ),
    "online-endpoint get-credentials": Verb("endpoint get-credentials", (_NAME,)),
    "online-endpoint regenerate-keys": Verb(
        "endpoint regenerate-keys", (_NAME, _o("--key-type", "--key-type"))
    ),
    "online-endpoint delete": Verb("endpoint delete", (_NAME, _LOCAL, _YES)),
    "online-deployment create": Verb(
        "deployment create",
        (
            *(_FILE, _E_NAME, _OF, _SET, _LOCAL),
            _o("--all-traffic", "--all-traffic", Takes.NOTHING),
            _o("--skip-script-validation --package-model", None, Takes.NOTHING),
            _o("--local-enable-gpu", None, Takes.NOTHING),
        ),
    ),
    "online-deployment update": Verb(
        "deployment update",
        (
            *(_FILE, _E_NAME, _OF, _SET, _LOCAL),
            _o("--skip-script-validation --local-enable-gpu", None, Takes.NOTHING),
        ),
    ),
    "online-deployment list": Verb("deployment list", (_OF, _LOCAL)),
    "online-deployment show": Verb("deployment show", (_NAME, _OF, _LOCAL)),
    "online-deployment get-logs": Verb(
        "deployment logs",
        (_NAME, _OF, _o("-l --lines", "--tail"), _o("-c --container", None), _LOCAL),
    ),
    "online-deployment delete": Verb("deployment delete", (_NAME, _OF, _LOCAL, _YES)),
    "batch-endpoint create": Verb(
        "endpoint create", (_FILE, _NAME, _o("--auth-mode", None), _SET), _BATCH
    ),
    "batch-endpoint list": Verb("endpoint list", (), _BATCH),
    "batch-endpoint show": Verb("endpoint show", (_NAME,)),
    "batch-endpoint update": Verb(
        "endpoint update",
        (
            *(_NAME, _SET, _o("--defaults", None, Takes.SEVERAL)),
            _o("--description", None),
        ),
    ),
    "batch-endpoint invoke": Verb(
        "endpoint invoke",
        (
            *(_NAME, _FILE, _SET, _INVOKED),
            *(_o(flag, flag) for flag in _OF_INVOCATIONS),
            *(_o(f"--{part}", f"--set {part}.", Takes.SEVERAL) for part in ("inputs", "outputs")),
            _o("-i --instance-count", "--instance-count"),
            _o("-m --mini-batch-size", "--mini-batch-size"),
        ),
    ),
    "batch-endpoint list-jobs": Verb("endpoint list-jobs", (_NAME,)),
    "batch-endpoint delete": Verb("endpoint delete", (_NAME, _YES)),
    "batch-deployment create": Verb(
        "deployment create",
        (
            *(_FILE, _E_NAME, _OF, _SET),
            _o("--set-default", "--set-default", Takes.NOTHING),
            _o("--skip-script-validation", None, Takes.NOTHING),
        ),
        _BATCH,
    ),
    "batch-deployment update": Verb("deployment update", (_FILE, _E_NAME, _OF, _SET), _BATCH),
    "batch-deployment list": Verb("deployment list", (_OF,)),
    "batch-deployment show": Verb("deployment show", (_NAME, _OF)),
    "batch-deployment list-jobs": Verb(
        "endpoint list-jobs", (_o("-e --endpoint-name", ""), _o("-n --name", "-d"))
    ),
    "batch-deployment delete": Verb("deployment delete", (_NAME, _OF, _YES)),
    "schedule create": Verb("schedule create", (_FILE, _o("-n --name", "--name"))),
    "schedule list": Verb("schedule list", (_o("-r --max-results", None),)),
    "schedule show": Verb("schedule show", (_NAME,)),
    "schedule disable": Verb("schedule pause", (_NAME,)),
    "schedule enable": Verb("schedule resume", (_NAME,)),
    "schedule trigger": Verb("schedule trigger", (_NAME,)),
    "schedule delete": Verb("schedule delete", (_NAME, _YES)),
}


def help_of(noun: str, verb: str) -> str:
    """The options of a verb, or the verbs of a noun."""
    entry = VERBS.get(f"{noun} {verb}")
    if entry is None:
        return "\n".join(f"az ml {each}" for each in VERBS if each.startswith(noun))
    lines = [f"az ml {noun} {verb}: allranks {entry.ours}", ""]
    for option in entry.options:
        value = {Takes.NOTHING: "", Takes.ONE: " VALUE", Takes.SEVERAL: " VALUE …"}[option.takes]
        lines.append(f"  {' '.join(option.flags)}{value}")
    return "\n".join([*lines, "  --query JMESPATH", f"  -o --output {'|'.join(_OUTPUTS)}"])


def read(words: Sequence[str]) -> Line:
    """A line after `az ml`. Raises UsageError for what has no counterpart here."""
    noun, verb = (*words, "", "")[:2]
    entry = VERBS.get(f"{noun} {verb}")
    if entry is None:
        verbs = [each for each in VERBS if each.startswith(f"{noun} ")]
        names = ", ".join(each.partition(" ")[2] for each in verbs)
        hint = f"here are: {names}" if verbs else f"nouns that are here: {_nouns()}"
        raise UsageError(f"`{f'az ml {noun} {verb}'.strip()}` is not there", hint=hint)
    own = {flag: option for option in entry.options for flag in option.flags}
    if "--set" in own:
        own |= {option.flags[0]: option for option in (_ADD, _REMOVE)}
    parsed = _options(words[2:], own, f"az ml {noun} {verb}")
    before: list[str] = []
    after: list[str] = []
    for option, values in parsed.own:
        if option in (_ADD, _REMOVE):
            values = _as_set(option, values)
        if option.ours == "":
            before += values
        elif option.ours in ("@version", "@label"):
            before[-1:] = [f"{before[-1]}{':' if option.ours == '@version' else '@'}{values[0]}"]
        elif option.ours is not None:
            for value in values or ("",):
                flag, _, part = option.ours.partition(" ")  # `--set inputs.` stands before each
                after += [flag, part + value] if values else [flag]
    kept = {o.flags[-1]: v or True for o, v in parsed.own if o.ours is None}
    line = (*entry.ours.split(), *before, *after, *entry.words)
    return Line(noun, verb, line, parsed.output, parsed.query, kept)


def _as_set(option: Option, values: list[str]) -> list[str]:
    """The overrides that a line's ``--add`` or ``--remove`` stands for. Raises UsageError."""
    if option == _REMOVE:
        values, wrong = [f"{path}=null" for path in values], any("=" in path for path in values)
    else:
        wrong = len(values) < 2 or not all("=" in text for text in values[1:])
        values = [f"{values[0]}.{text}" for text in values[1:]]
    if wrong:
        hint = "--add tags KEY=VALUE, --remove tags.KEY; lists: --set KEY='[…]'"
        raise UsageError("lists are not changed in parts here", where=option.flags[0], hint=hint)
    return values


class _Parsed(NamedTuple):
    own: list[tuple[Option, list[str]]]
    output: str
    query: str


def _options(words: Sequence[str], own: Mapping[str, Option], command: str) -> _Parsed:
    """The options of a line, the name before the version that belongs to it."""
    options: list[tuple[Option, list[str]]] = []
    output, query, rest = "json", "", [*words]
    where = {flag for each in _WHERE for flag in each.split()}
    known = {*own, *where, *_QUIET, "-o", "--output", "--query"}
    while rest:
        word = rest.pop(0)
        flag, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if equals:
            rest.insert(0, value)
        flag = _full(flag, known)
        if flag in own:
            option = own[flag]
            options.append((option, _values(option.takes, rest, flag, command)))
        elif flag in ("-o", "--output"):
            (output,) = _values(Takes.ONE, rest, flag, command)
        elif flag == "--query":
            (query,) = _values(Takes.ONE, rest, flag, command)
        elif flag in where:
            _values(Takes.ONE, rest, flag, command)
        elif flag not in _QUIET:
            hint = f"it takes {', '.join(sorted(own))}, --query and -o"
            raise UsageError(f"`{command}` has no {word[:80]!r} here", hint=hint)
    if output not in _OUTPUTS:
        hint = f"use one of {', '.join(_OUTPUTS)}"
        raise UsageError(f"{output[:80]!r} is not an output format", where="--output", hint=hint)
    options.sort(key=lambda each: each[0].ours != "")
    if any((o.ours or "").startswith("@") for o, _ in options) and options[0][0].ours != "":
        raise UsageError(f"`{command}` needs a name", where="--name", hint="add -n NAME")
    return _Parsed(options, output, query)


def _full(flag: str, known: Set[str]) -> str:
    """az accepts the beginning of a long option that no other one has."""
    longer = [item for item in known if item.startswith(flag)] if flag.startswith("--") else []
    return longer[0] if len(longer) == 1 and flag not in known else flag


def _values(takes: Takes, rest: list[str], flag: str, command: str) -> list[str]:
    if takes is Takes.NOTHING:
        return []
    if not rest or (takes is Takes.SEVERAL and rest[0].startswith("--")):
        raise UsageError(f"{flag} of `{command}` needs a value", where=flag, hint=f"{flag} VALUE")
    if takes is Takes.ONE:
        return [rest.pop(0)]
    values = []
    while rest and not rest[0].startswith("-"):
        values.append(rest.pop(0))
    return values


def _nouns() -> str:
    return ", ".join(dict.fromkeys(each.partition(" ")[0] for each in VERBS))
