"""`allranks compute …`: named targets for jobs, and what their clusters say of themselves."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from allranks.cli.output import show
from allranks.engines.options import COMMON, Option, Type
from allranks.errors import SpecError, UsageError
from allranks.plan.amounts import counted
from allranks.sdk.connection import find_server
from allranks.sdk.connection.urls import asset_path

_COMPUTES = "/api/v1/computes"
_AGAIN = 1.0


def create_options(parser: argparse.ArgumentParser) -> None:
    from allranks.engines.registry import KINDS  # lazy: only making one has to know of engines

    parser.add_argument("name", nargs="?", metavar="NAME", help="its name (the file's)")
    add = parser.add_argument
    add("-f", "--file", metavar="FILE", help="a compute's YAML; - is stdin")
    add("--type", metavar="TYPE", help=f"its engine: {', '.join(KINDS)}")
    add("--default", action="store_true", help="jobs that name no compute go there")
    _key_options(parser)


def create(options: argparse.Namespace) -> int:
    """Make a compute; its cluster is asked first whether it can be."""
    data, lines, file = _read(options.file)
    _absolute(data, Path(file or "").parent)
    given = _given(options)
    # An option of the engine's may stand beside the keys, as in a file: the command line wins.
    data |= {**given, **given.pop("options", {})}
    for key in ("name", "type"):
        if getattr(options, key) is not None:
            data[key] = getattr(options, key)
    _from_environment(data)
    _absolute(data, Path())
    if "name" not in data:
        raise UsageError("a compute needs a name", hint="allranks compute create NAME --type …")
    client = find_server.connect()
    try:
        made = client.json("POST", _COMPUTES, data)
    except SpecError as error:
        from allranks.spec.fields.problems import placed  # lazy: imports the models

        raise SpecError([placed(p, lines) for p in error.problems], file=file) from None
    if options.default:
        client.json("PUT", f"{_COMPUTES}/default", {"name": made["name"]})
        made["is_default"] = True
    return _told(options, made, "made")


def update_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of the compute")
    _key_options(parser)


def update(options: argparse.Namespace) -> int:
    """Change what was given; jobs that were submitted go on as they are."""
    given = _given(options)
    own = given.pop("options", {})
    changed = _unset(given) | ({"options": _unset(own)} if own else {})
    if not changed:
        raise UsageError("nothing to change", hint="give the flags that are to be different")
    made = find_server.connect().json("PATCH", _path(options.name), changed)
    return _told(options, made, "changed")


def list_computes_options(parser: argparse.ArgumentParser) -> None:
    pass


def list_computes(options: argparse.Namespace) -> int:
    found = find_server.connect().json("GET", _COMPUTES)
    if options.json:
        show.as_json(found)
        return 0
    rows = [
        (
            each["name"] + (" *" if each["is_default"] else ""),
            each["type"],
            _range(each),
            _words(each["options"]),
        )
        for each in found["computes"]
    ]
    show.columns(("NAME", "TYPE", "NODES", "OPTIONS"), rows)
    if not options.quiet:
        goals: dict[str, list[str]] = {}
        for name, goal in found["stands_for"].items():
            goals.setdefault(goal, []).append(name)
        for goal, names in goals.items():
            show.talk(f"{', '.join(names)}: {'stand' if len(names) > 1 else 'stands'} for {goal}")
    return 0


def show_compute_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of the compute")


def show_compute(options: argparse.Namespace) -> int:
    """A compute with its hosts, what is free there and what waits."""
    found = find_server.connect().json("GET", _path(options.name))
    if options.json:
        show.as_json(found)
        return 0
    for key, value in _lines(found):
        print(f"{key:<12}{value}")
    if found["hosts"]:
        print()
        rows = [
            (h["name"], h["address"], h["state"], _free(h, "cpus"), _free(h, "gpus"), h["why"])
            for h in found["hosts"]
        ]
        show.columns(("HOST", "ADDRESS", "STATE", "CPUS FREE", "GPUS FREE", ""), rows)
    if found["jobs"]:
        print()
        jobs = [(j["name"], j["status"], str(j["nodes"]), j["reason"] or "") for j in found["jobs"]]
        show.columns(("JOB", "STATUS", "NODES", "WHY"), jobs)
    return 0


def wait_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("name", metavar="NAME", help="name of the compute")
    add("--min-nodes", type=int, metavar="K", help="until K hosts are ready (its min_instances, 1)")
    add("--timeout", type=float, metavar="S", help="for so many seconds at most; then exit 124")


def wait(options: argparse.Namespace) -> int:
    """Return once enough hosts are ready to take a node of a job."""
    client, line = find_server.connect(), show.StatusLine(options.quiet)
    until = None if options.timeout is None else time.monotonic() + options.timeout
    while True:
        found = client.json("GET", _path(options.name))
        wanted = options.min_nodes or found["min_instances"] or 1
        ready = sum(host["ready"] for host in found["hosts"])
        done = ready >= wanted
        late = until is not None and time.monotonic() >= until
        if done or late:
            line.clear()
            return _waited(options, found, ready, wanted, done)
        states = _count(host["state"] for host in found["hosts"])
        line.say(f"{ready} of {wanted} ready ({found['trouble'] or states or 'no hosts'})")
        time.sleep(_AGAIN if until is None else min(_AGAIN, max(0.0, until - time.monotonic())))


def delete_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of the compute")


def delete(options: argparse.Namespace) -> int:
    """Forget a compute; its cluster is left as it is, and so are jobs that run there."""
    told = find_server.connect().json("DELETE", _path(options.name))
    if options.json:
        show.as_json(told)
    elif not options.quiet:
        if told["default"] == options.name:
            show.talk(
                f"{options.name} is as it was at first: a compute of that name is always there"
            )
        else:
            show.talk(f"{options.name} is deleted; jobs that run there go on")
            if told["default"]:
                show.talk(f"note: jobs that name no compute go to {told['default']} from now on")
    return 0


def set_default_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of the compute")


def set_default(options: argparse.Namespace) -> int:
    """Jobs that name no compute go there from now on."""
    find_server.connect().json("PUT", f"{_COMPUTES}/default", {"name": options.name})
    if not options.quiet and not options.json:
        show.talk(f"jobs that name no compute go to {options.name}")
    return 0


def stand_for_options(parser: argparse.ArgumentParser) -> None:
    text = "a name jobs use, and the compute it means; without a compute: none any more"
    parser.add_argument("names", nargs="*", metavar="NAME=COMPUTE", help=text)


def stand_for(options: argparse.Namespace) -> int:
    """Let names in other people's job files mean computes of yours; alone: show those that do."""
    if not options.names:
        found = find_server.ask("GET", _COMPUTES)["stands_for"]
        show.as_json(found) if options.json else show.columns(("NAME", "COMPUTE"), [*found.items()])
        return 0
    pairs = [name.partition("=") for name in options.names]
    if any(not equals for _, equals, _ in pairs):
        raise UsageError("that is no NAME=COMPUTE", hint="as in: cpu-cluster=slurm-main")
    goals = {name: goal or None for name, _, goal in pairs}
    find_server.connect().json("PUT", f"{_COMPUTES}/map", goals)
    if not options.quiet and not options.json:
        for name, goal in goals.items():
            show.talk(f"{name} means {goal}" if goal else f"{name} means nothing of its own")
    return 0


# ---------------------------------------------------------------- reading


def _key_options(parser: argparse.ArgumentParser) -> None:
    """The flags that both creating and updating have: a compute's keys, then the engines'."""
    from allranks.engines.registry import KINDS  # lazy: as above

    add = parser.add_argument
    add("--description", metavar="TEXT", help="a description to show with it")
    add("--size", metavar="TEXT", help="what a node is like, in your words")
    add("--tier", metavar="TIER", help="dedicated or low_priority")
    add("--min-instances", metavar="N", help="`compute wait` waits for so many (0)")
    add("--max-instances", metavar="N", help="no job gets more nodes (as many as there are)")
    add("--gpus-per-node", metavar="N", help="GPUs of jobs that do not say how many (one a rank)")
    add("--idle-time-before-scale-down", metavar="S", help="kept and shown: the cluster decides")
    where = "where its nodes reach this server (found by asking the kernel)"
    add("--server-address", metavar="ADDRESS", help=where)
    of: dict[str, list[tuple[str, Option]]] = {each.name: [("", each)] for each in COMMON}
    for kind in KINDS.values():
        for option in kind.options:
            of.setdefault(option.name, []).append((kind.name, option))
    groups: dict[str, Any] = {}
    for found in of.values():
        title = " and of ".join(name for name, _ in found) or "every engine"
        if title not in groups:
            groups[title] = parser.add_argument_group(f"options of {title}")
        _add_option(groups[title], found)


def _add_option(group: Any, found: Sequence[tuple[str, Option]]) -> None:
    """One flag for the options of that name, whichever engines have one."""
    option = found[0][1]
    flag, dest = f"--{option.name.replace('_', '-')}", f"option_{option.name}"
    text = "; ".join(
        (f"{name}: " if len(found) > 1 else "")
        + each.help
        + (f" ({each.default})" if each.default is not None else "")
        for name, each in found
    ).replace("%", "%%")
    if option.type is Type.SWITCH:
        group.add_argument(flag, dest=dest, action=argparse.BooleanOptionalAction, help=text)
    elif option.type is Type.LINES:
        group.add_argument(flag, dest=dest, action="append", metavar="TEXT", help=f"{text}; repeat")
    else:
        metavar = "N" if option.type is Type.NUMBER else "TEXT"
        group.add_argument(flag, dest=dest, metavar=metavar, help=text)


_KEYS = (
    "description",
    "size",
    "tier",
    "min_instances",
    "max_instances",
    "gpus_per_node",
    "idle_time_before_scale_down",
    "server_address",
)


def _given(options: argparse.Namespace) -> dict[str, Any]:
    values = vars(options)
    found = {key: values[key] for key in _KEYS if values[key] is not None}
    own = {
        name.removeprefix("option_"): value
        for name, value in values.items()
        if name.startswith("option_") and value is not None
    }
    found |= {"options": own} if own else {}
    _absolute(found, Path())
    return found


def _unset(values: Mapping[str, Any]) -> dict[str, Any]:
    """What was given empty goes back to what is default."""
    return {key: None if value in ("", [""]) else value for key, value in values.items()}


def _from_environment(data: dict[str, Any]) -> None:
    """What the caller's own environment says of the cluster is kept with the compute: the server
    may have been started from another shell."""
    from allranks.engines.registry import KINDS  # lazy: as above

    kind = KINDS.get(str(data.get("type")))
    for option in kind.options if kind is not None else ():
        value = os.environ.get(option.variable or "")
        if value and option.name not in data:
            data[option.name] = value


def _absolute(data: dict[str, Any], folder: Path) -> None:
    """Paths among the options of engines are of who writes them, and the server is elsewhere."""
    from allranks.engines.registry import KINDS  # lazy: as above

    paths = {o.name for kind in KINDS.values() for o in kind.options if o.type is Type.PATH}
    own = data.get("options")
    for each in (data, own if isinstance(own, dict) else {}):
        for name in paths & each.keys():
            if isinstance(each[name], str) and each[name]:
                each[name] = os.path.abspath(folder / Path(each[name]).expanduser())


def _read(file: str | None) -> tuple[dict[str, Any], dict[str, int], str | None]:
    if file is None:
        return {}, {}, None
    from allranks.spec.yaml import load  # lazy: imports the models

    name = "stdin" if file == "-" else file
    text = sys.stdin.read() if file == "-" else load.content(Path(file))
    data, lines = load.read(text, file=name)
    return data, lines, name


def _path(name: str) -> str:
    return asset_path("computes", name)


# ---------------------------------------------------------------- showing


def _told(options: argparse.Namespace, made: Mapping[str, Any], word: str) -> int:
    if options.json:
        show.as_json(made)
    elif not options.quiet:
        show.talk(f"{made['name']} is {word}: {made['type']}, {_words(made['options']) or 'plain'}")
        if made["door"]:
            show.talk(f"its nodes reach this server at {made['door']}")
        for key in made["without_effect"]:
            show.talk(f"note: `{key}` has no effect on a cluster that is there already")
        show.talk(f"try it: allranks run -c {made['name']} -- hostname")
    return 0


def _waited(
    options: argparse.Namespace, found: Mapping[str, Any], ready: int, wanted: int, done: bool
) -> int:
    if options.json:
        show.as_json({"ready": ready, "wanted": wanted, "done": done, "hosts": found["hosts"]})
    elif not done:
        show.talk(f"{ready} of {wanted} hosts are ready: {found['trouble'] or 'time is up'}")
    elif not options.quiet:
        show.talk(f"ready: {counted(ready, 'host')}")
    return 0 if done else 124


def _lines(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    lines = [
        ("name", found["name"] + (" (the default)" if found["is_default"] else "")),
        ("type", found["type"]),
        ("about", found["description"]),
        ("nodes", _range(found)),
        ("size", found["size"]),
        ("gpus", _gpus(found["gpus_per_node"])),
        ("tier", found["tier"]),
        ("options", _words(found["options"])),
        ("door", found["door"]),
        ("trouble", found["door_trouble"] or found["trouble"]),
    ]
    return [(key, value) for key, value in lines if value]


def _gpus(count: int | None) -> str:
    return "" if count is None else f"{count} per node for jobs that do not say how many"


def _range(found: Mapping[str, Any]) -> str:
    least, most = found["min_instances"], found["max_instances"]
    return f"{least} to {most}" if most else (f"{least} or more" if least else "")


def _words(options: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={_value(value)}" for name, value in options.items())


def _value(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _free(host: Mapping[str, Any], what: str) -> str:
    return f"{host[f'free_{what}']:g} of {host[what]:g}" if host[what] else ""


def _count(states: Iterable[str]) -> str:
    return ", ".join(f"{number} {state}" for state, number in Counter(states).items())
