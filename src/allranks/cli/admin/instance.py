"""`allranks instance …`: how many GPUs the instance types of job files stand for."""

from __future__ import annotations

import argparse

from allranks.cli.output import show
from allranks.errors import UsageError
from allranks.plan.amounts import counted
from allranks.sdk.connection import find_server

_MAP = "/api/v1/instances/map"


def stand_for_options(parser: argparse.ArgumentParser) -> None:
    size = "an `instance_type` of job files: Standard_NC6s_v3, ml.p3.8xlarge or one of your own"
    parser.add_argument("size", nargs="?", metavar="SIZE", help=size)
    parser.add_argument("--gpus", type=int, metavar="G", help="the GPUs of a node of that size")
    parser.add_argument("--reset", action="store_true", help="what is built in again, if anything")


def stand_for(options: argparse.Namespace) -> int:
    """Set the GPUs of an instance type; without one, show all that are known."""
    client = find_server.connect()
    if options.size is None:
        if options.gpus is not None or options.reset:
            hint = "allranks instance map SIZE --gpus G"
            raise UsageError("there is no SIZE to change", where="SIZE", hint=hint)
        return _listed(options, client.json("GET", _MAP))
    if (options.gpus is None) == (not options.reset):
        hint = f"allranks instance map {options.size} --gpus 4"
        raise UsageError("either --gpus or --reset belongs to a SIZE", where="--gpus", hint=hint)
    client.json("PUT", _MAP, {options.size: options.gpus})
    if not options.quiet and not options.json:
        has = "is what is built in" if options.reset else f"has {counted(options.gpus, 'GPU')}"
        show.talk(f"{options.size} {has}")
    return 0


def _listed(options: argparse.Namespace, found: dict[str, dict[str, int]]) -> int:
    if options.json:
        show.as_json(found)
        return 0
    own = found["own"]
    rows = [
        (size, str(count), "said here" if size in own else "built in")
        for size, count in found["map"].items()
    ]
    rows += [(family, "0", "built in") for family in found["none"]]
    show.columns(("SIZE", "GPUS", ""), rows)
    return 0
