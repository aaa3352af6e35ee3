"""`allranks compute …`: named targets for jobs, with their hosts and queues."""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allranks.api import routes
from allranks.cli.assets.versions import definition, given, option_errors
from allranks.cli.output import show
from allranks.cli.parser import duration, positive
from allranks.core.amounts import counted
from allranks.engines.options import COMMON, Option, Type
from allranks.engines.registry import KINDS
from allranks.errors import UsageError
from allranks.sdk.connection import contexts, find_server

if TYPE_CHECKING:
    from allranks.api.common import Document
    from allranks.http_client import Client

_POLL_SECONDS = 1.0


def create_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="its name (the file's)")
    add = parser.add_argument
    text = "a compute's YAML; - is stdin; one that exists is updated: it gets the file's keys"
    add("-f", "--file", metavar="FILE", help=text)
    add("--type", metavar="TYPE", help=f"its engine: {', '.join(KINDS)}")
    add("--default", action="store_true", help="make it the default compute")
    help_ = "set a key of the file, e.g. --set max_nodes=4"
    add("--set", action="append", default=[], metavar="KEY=VALUE", help=help_)
    _key_options(parser)


def create(options: argparse.Namespace) -> int:
    """Create a compute, or update the one that the file is about. The server checks its cluster
    first."""
    with definition(options.file, options.set) as data:
        # A relative path in a file starts at the file's folder, one in an option at this one.
        _make_paths_absolute(data, Path(options.file or "").parent)
        changes = _changes(options)
        # A file may have engine options beside the keys: the command line overrides both.
        data |= {**changes, **changes.pop("options", {}), **given(options, "name", "type")}
        _add_shell_variables(data)
        _make_paths_absolute(data, Path())
        if "name" not in data:
            hint = "allranks compute create NAME --type …"
            raise UsageError("a compute needs a name", hint=hint)
        client = find_server.connect()
        exists = options.file is not None and _exists(client, data["name"])
        compute = client.ask(routes.create_compute, body=data, replace=exists or None)
    if options.default:
        client.ask(routes.set_default_compute, body={"name": compute["name"]})
        compute["is_default"] = True
    return _print_changed(options, compute, "updated" if exists else "created")


def _exists(client: Client, name: object) -> bool:
    listing = client.ask(routes.list_computes)
    return any(compute["name"] == name for compute in listing["computes"])


def render_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("type", metavar="TYPE", help="type of the compute")
    parser.add_argument("--namespace", metavar="N", default="allranks", help="namespace (allranks)")
    add = parser.add_argument_group("the server inside the cluster").add_argument
    add("--server", action="store_true", help="also what runs the server, with its volume")
    add("--image", metavar="IMAGE", help="image with allranks, for the server")
    add("--storage", metavar="SIZE", help="size of its volume (100Gi)")
    add("--storage-class", metavar="NAME", help="class of the volume (the cluster's default)")
    add(
        "--access-mode",
        metavar="MODE",
        choices=("ReadWriteOnce", "ReadWriteMany"),
        help="ReadWriteMany: pods of jobs may mount it, too (ReadWriteOnce)",
    )
    add(
        "--database",
        metavar="SECRET",
        help="Secret with the URL of a PostgreSQL in `url` (SQLite on the volume)",
    )
    add("--host", metavar="NAME", help="name for people, such as that of an ingress")


def render(options: argparse.Namespace) -> int:
    """Print what an administrator of the cluster applies once: its least rights, and the server."""
    kind = KINDS.get(options.type)
    if kind is None or kind.setup is None:
        names = ", ".join(name for name, each in KINDS.items() if each.setup)
        message = f"computes of type {options.type!r} need nothing in the cluster"
        raise UsageError(message, where="TYPE", hint=f"types that do: {names}")
    values = given(options, "image", "storage", "storage_class", "access_mode", "database", "host")
    if options.server and kind.server is not None:
        if "image" not in values:
            hint = "--image IMAGE, with `pip install 'allranks[kubernetes]'` and `allranks` on PATH"
            raise UsageError("the server needs an image", where="--image", hint=hint)
        text = kind.server(options.namespace, values)
    elif values:
        raise UsageError(f"--{next(iter(values)).replace('_', '-')} needs --server", hint="add it")
    else:
        text = kind.setup(options.namespace)
    if options.json:
        show.as_json({"manifest": text})
    else:
        print(text, end="")
    return 0


def _name_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of the compute")


def update_options(parser: argparse.ArgumentParser) -> None:
    _name_option(parser)
    _key_options(parser)


def update(options: argparse.Namespace) -> int:
    """Change the given keys. Submitted jobs keep the old ones."""
    changes = _changes(options)
    own = changes.pop("options", {})
    changes = _unset(changes) | ({"options": _unset(own)} if own else {})
    if not changes:
        raise UsageError("nothing to change", hint="add the flags to change")
    with option_errors():
        compute = find_server.ask(routes.update_compute, options.name, body=changes)
    return _print_changed(options, compute, "updated")


def list_computes_options(parser: argparse.ArgumentParser) -> None:
    """No options."""


def list_computes(options: argparse.Namespace) -> int:
    listing = find_server.ask(routes.list_computes)
    if options.json:
        show.as_json(listing)
        return 0
    rows = [
        (
            each["name"] + (" *" if each["is_default"] else ""),
            each["type"],
            _node_range(each),
            _options_text(each["options"]),
        )
        for each in listing["computes"]
    ]
    show.columns(("NAME", "TYPE", "NODES", "OPTIONS"), rows)
    if not options.quiet:
        aliases: dict[str, list[str]] = {}
        for alias, compute in listing["stands_for"].items():
            aliases.setdefault(compute, []).append(alias)
        for compute, names in aliases.items():
            show.talk(f"{', '.join(names)}: mapped to {compute}")
    return 0


show_compute_options = _name_option


def show_compute(options: argparse.Namespace) -> int:
    """Print a compute with its hosts, what runs and is free on each, and why its jobs wait."""
    compute = find_server.ask(routes.show_compute, options.name)
    if options.json:
        show.as_json(compute)
        return 0
    for key, value in _fields(compute):
        show.line(f"{key:<12}{value}")
    if compute["hosts"]:
        print()
        rows = [
            (
                *(h["name"], h["address"], h["state"], _free(h, "cpus"), _free(h, "gpus")),
                ", ".join(run["job"] for run in h["runs"]),
                h["why"],
            )
            for h in compute["hosts"]
        ]
        show.columns(("HOST", "ADDRESS", "STATE", "CPUS FREE", "GPUS FREE", "RUNS", ""), rows)
    if compute["jobs"]:
        print()
        jobs = [
            (j["name"], j["status"], str(j["nodes"]), j["reason"] or "") for j in compute["jobs"]
        ]
        show.columns(("JOB", "STATUS", "NODES", "WHY"), jobs)
    return 0


def wait_options(parser: argparse.ArgumentParser) -> None:
    _name_option(parser)
    add = parser.add_argument
    add("--min-nodes", type=positive, metavar="K", help="hosts to wait for (its min_instances, 1)")
    add("--timeout", type=duration, metavar="TIME", help="stop waiting then, with exit code 124")


def wait(options: argparse.Namespace) -> int:
    """Wait until enough hosts are ready for a node of a job."""
    client = find_server.connect()
    line = show.StatusLine(options.quiet)
    end = float("inf") if options.timeout is None else time.monotonic() + options.timeout
    while True:
        compute = client.ask(routes.show_compute, options.name)
        needed = options.min_nodes or compute["min_instances"] or 1
        ready = sum(host["ready"] for host in compute["hosts"])
        remaining = end - time.monotonic()
        if ready >= needed or remaining <= 0:
            line.clear()
            return _print_waited(options, compute, ready, needed)
        states = Counter(host["state"] for host in compute["hosts"])
        why = compute["trouble"] or ", ".join(f"{n} {state}" for state, n in states.items())
        line.say(f"{ready} of {needed} ready ({why or 'no hosts'})")
        time.sleep(min(_POLL_SECONDS, remaining))


def _print_waited(
    options: argparse.Namespace, compute: Mapping[str, Any], ready: int, needed: int
) -> int:
    done = ready >= needed
    if options.json:
        show.as_json({"ready": ready, "wanted": needed, "done": done, "hosts": compute["hosts"]})
    elif not done:
        show.talk(f"{ready} of {needed} hosts are ready: {compute['trouble'] or 'timed out'}")
    elif not options.quiet:
        show.talk(f"ready: {counted(ready, 'host')}")
    return 0 if done else 124


def delete_options(parser: argparse.ArgumentParser) -> None:
    _name_option(parser)
    show.yes_option(parser.add_argument)


def delete(options: argparse.Namespace) -> int:
    """Delete a compute. Its cluster and the jobs that run there are not touched."""
    if not show.may_destroy(options, f"delete the compute {options.name}"):
        return 1
    deleted = find_server.ask(routes.delete_compute, options.name)
    default = deleted["default"]
    if default == options.name:
        reset = f"{options.name} is reset to its defaults; a compute of that name always exists"
        return show.result(options, deleted, reset)
    notes = [f"note: {default} is now the default compute"] if default else []
    sentence = f"{options.name} is deleted; jobs that run there keep running"
    return show.result(options, deleted, sentence, *notes)


set_default_options = _name_option


def set_default(options: argparse.Namespace) -> int:
    """Set the compute of jobs that name none."""
    find_server.ask(routes.set_default_compute, body={"name": options.name})
    answer = {"default": options.name}
    return show.result(options, answer, f"{options.name} is now the default compute")


def map_name_options(parser: argparse.ArgumentParser) -> None:
    text = "a name in job files and the compute to use; an empty COMPUTE removes the mapping"
    parser.add_argument("names", nargs="*", metavar="NAME=COMPUTE", help=text)


def map_name(options: argparse.Namespace) -> int:
    """Map compute names of job files to computes; without any, print the mappings."""
    if not options.names:
        mappings = find_server.ask(routes.list_computes)["stands_for"]
        return show.listing(options, mappings, ("NAME", "COMPUTE"), [*mappings.items()])
    pairs = [name.partition("=") for name in options.names]
    if any(not equals for _, equals, _ in pairs):
        raise UsageError("expected NAME=COMPUTE", hint="as in: cpu-cluster=slurm-main")
    table = {name: compute or None for name, _, compute in pairs}
    find_server.ask(routes.map_computes, body=table)
    sentences = (
        f"{name} maps to {compute}" if compute else f"{name} is no longer mapped"
        for name, compute in table.items()
    )
    return show.result(options, table, *sentences)


# ---------------------------------------------------------------- reading options

_KEYS = {
    "description": ("TEXT", "a description to show with it"),
    "size": ("TEXT", "a description of a node, as free text"),
    "tier": ("TIER", "dedicated or low_priority"),
    "min_instances": ("N", "hosts that `compute wait` waits for (0)"),
    "max_instances": ("N", "the most nodes of a job (as many as there are)"),
    "gpus_per_node": ("N", "GPUs per node of jobs without --gpus (one a rank)"),
    "idle_time_before_scale_down": ("S", "stored and shown only: the cluster decides"),
    "server_address": ("ADDRESS", "address at which its nodes reach this server (detected)"),
}


def _key_options(parser: argparse.ArgumentParser) -> None:
    """Add the flags of create and update: a compute's keys, then the engines' options."""
    for key, (metavar, text) in _KEYS.items():
        parser.add_argument(f"--{key.replace('_', '-')}", metavar=metavar, help=text)
    named: dict[str, list[tuple[str, Option]]] = {each.name: [("", each)] for each in COMMON}
    for kind in KINDS.values():
        for option in kind.options:
            named.setdefault(option.name, []).append((kind.name, option))
    groups: Document = {}
    for variants in named.values():
        title = " and ".join(name for name, _ in variants) or "every engine"
        if title not in groups:
            groups[title] = parser.add_argument_group(f"options of {title}")
        _add_option(groups[title], variants)


def _add_option(group: Any, variants: Sequence[tuple[str, Option]]) -> None:
    """Add one flag for the option that several engines may have under the same name."""
    option = variants[0][1]
    flag, dest = f"--{option.name.replace('_', '-')}", f"option_{option.name}"
    text = "; ".join(
        (f"{engine}: " if len(variants) > 1 else "")
        + each.help
        + (f" ({each.default})" if each.default is not None else "")
        for engine, each in variants
    ).replace("%", "%%")
    if option.type is Type.SWITCH:
        group.add_argument(flag, dest=dest, action=argparse.BooleanOptionalAction, help=text)
    elif option.type is Type.LINES:
        group.add_argument(flag, dest=dest, action="append", metavar="TEXT", help=f"{text}; repeat")
    else:
        metavar = "N" if option.type in (Type.NUMBER, Type.COUNT) else "TEXT"
        group.add_argument(flag, dest=dest, metavar=metavar, help=text)


def _changes(options: argparse.Namespace) -> Document:
    """The keys given on the command line; the engine's under ``options``."""
    changes = given(options, *_KEYS)
    own = {
        name.removeprefix("option_"): value
        for name, value in vars(options).items()
        if name.startswith("option_") and value is not None
    }
    changes |= {"options": own} if own else {}
    _make_paths_absolute(changes, Path())
    return changes


def _unset(values: Mapping[str, Any]) -> Document:
    """Empty values as None, which resets a key to its default."""
    return {key: None if value in ("", [""]) else value for key, value in values.items()}


def _add_shell_variables(data: Document) -> None:
    """Store this shell's variables of the cluster: the server may run in another shell. A server on
    another machine has files of its own."""
    if contexts.chosen() is not None:
        return
    kind = KINDS.get(str(data.get("type")))
    for option in kind.options if kind is not None else ():
        value = os.environ.get(option.variable or "")
        if value and option.name not in data:
            data[option.name] = value


def _make_paths_absolute(data: Document, folder: Path) -> None:
    """Resolve engine options that are paths: the server runs in another folder."""
    paths = {o.name for kind in KINDS.values() for o in kind.options if o.type is Type.PATH}
    own = data.get("options")
    for mapping in (data, own if isinstance(own, dict) else {}):
        for name in paths & mapping.keys():
            if isinstance(mapping[name], str) and mapping[name]:
                mapping[name] = os.path.abspath(folder / Path(mapping[name]).expanduser())


# ---------------------------------------------------------------- printing


def _print_changed(options: argparse.Namespace, compute: Mapping[str, Any], verb: str) -> int:
    name, text = compute["name"], _options_text(compute["options"]) or "no options"
    sentences = [f"{name} is {verb}: {compute['type']}, {text}"]
    if compute["door"]:
        sentences.append(f"nodes reach this server at {compute['door']}")
    for key in compute["without_effect"]:
        sentences.append(f"note: `{key}` has no effect on an existing cluster")
    sentences += [f"note: {note}" for note in compute["notes"]]
    return show.result(options, compute, *sentences, f"try it: allranks run -c {name} -- hostname")


def _fields(compute: Mapping[str, Any]) -> list[tuple[str, str]]:
    gpus = compute["gpus_per_node"]
    fields = [
        ("name", compute["name"] + (" (the default)" if compute["is_default"] else "")),
        ("type", compute["type"]),
        ("about", compute["description"]),
        ("nodes", _node_range(compute)),
        ("size", compute["size"]),
        ("gpus", "" if gpus is None else f"{gpus} per node for jobs without --gpus"),
        ("tier", compute["tier"]),
        ("options", _options_text(compute["options"])),
        ("door", compute["door"]),
        ("trouble", compute["door_trouble"] or compute["trouble"]),
    ]
    return [(key, value) for key, value in fields if value]


def _node_range(compute: Mapping[str, Any]) -> str:
    least, most = compute["min_instances"], compute["max_instances"]
    return f"{least} to {most}" if most else (f"{least} or more" if least else "")


def _options_text(options: Mapping[str, Any]) -> str:
    return " ".join(
        f"{name}={','.join(map(str, value)) if isinstance(value, list) else value}"
        for name, value in options.items()
    )


def _free(host: Mapping[str, Any], resource: str) -> str:
    shown = "?" if (free := host[f"free_{resource}"]) is None else f"{free:g}"
    return f"{shown} of {host[resource]:g}" if host[resource] else ""
