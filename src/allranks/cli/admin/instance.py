"""`allranks instance map`: the number of GPUs of each instance type in job files."""

from __future__ import annotations

import argparse

from allranks.api import routes
from allranks.cli.output import show
from allranks.core.amounts import counted
from allranks.errors import UsageError
from allranks.sdk.connection import find_server


def map_size_options(parser: argparse.ArgumentParser) -> None:
    size = "an `instance_type` of job files: Standard_NC6s_v3, ml.p3.8xlarge or a name of yours"
    parser.add_argument("size", nargs="?", metavar="SIZE", help=size)
    parser.add_argument("--gpus", type=int, metavar="G", help="GPUs of a node of that type")
    parser.add_argument("--reset", action="store_true", help="restore the built-in number")


def map_size(options: argparse.Namespace) -> int:
    """Set the number of GPUs of an instance type; without one, print all numbers."""
    if options.size is None:
        if options.gpus is not None or options.reset:
            hint = "allranks instance map SIZE --gpus G"
            raise UsageError("SIZE is missing", where="SIZE", hint=hint)
        table = find_server.ask(routes.show_instance_map)
        rows = [
            (size, str(count), "set here" if size in table["own"] else "built in")
            for size, count in table["map"].items()
        ]
        rows += [(family, "0", "built in") for family in table["none"]]
        return show.listing(options, table, ("SIZE", "GPUS", ""), rows)
    if (options.gpus is None) == (not options.reset):
        hint = f"allranks instance map {options.size} --gpus 4"
        raise UsageError("SIZE needs either --gpus or --reset", where="--gpus", hint=hint)
    entry = {options.size: options.gpus}
    find_server.ask(routes.map_instances, body=entry)
    gpus = "is reset to built in" if options.reset else f"has {counted(options.gpus, 'GPU')}"
    return show.result(options, entry, f"{options.size} {gpus}")
