"""``python -m bench NAME``: one benchmark, or all; a table on stdout, JSON in bench/results."""

from __future__ import annotations

import argparse
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench import compare, peers, publish
from bench.registry import BENCHES, load
from bench.report import Result, machine, markdown, new_file, write


def main(argv: Sequence[str]) -> int:
    given = _parser(quick="--quick" in argv).parse_args(argv)
    if given.door == "peers":
        return peers.main(given)
    if given.door == "compare":
        return compare.main(given)
    if given.door == "publish":
        return publish.main(given)
    names = (given.names or list(BENCHES)) if given.door == "all" else [given.door]
    if unknown := [name for name in names if name not in BENCHES]:
        print(f"error: there is no benchmark {unknown[0]}; see --help", file=sys.stderr)
        return 2
    # Ended from outside, it still takes its homes down, and what runs in them.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    for line in _missing(names, bool(given.torch_python)):
        print(line, flush=True)
    path, results = given.json or new_file(given.door), list[Result]()
    where = machine()
    began = time.monotonic()
    for name in names:
        results.append(_run(name, given))
        print(f"{time.monotonic() - began:.0f} s so far\n", flush=True)
        told = [each.json() for each in results]
        # After each: what is interrupted keeps what it has.
        write(path, {"machine": where, "results": told} if given.door == "all" else told[0])
    if given.door == "all":
        numbers, file = publish.table([each.json() for each in results]), path.with_suffix(".md")
        text = f"{numbers}\n{markdown(results)}"
        file.write_text(text + "\n")
        print(f"{text}\n\nthese tables: {file}")
    print(f"raw samples: {path}")
    return 1 if any(each.wrong for each in results) else 0


def _missing(names: Sequence[str], torch: bool) -> Iterator[str]:
    """What will be left out, before hours are spent on the rest."""
    for name in names:
        about = BENCHES[name]
        for wanted, effect in ((about.needs, "is left out"), (about.beside, "goes without")):
            for peer in wanted:
                if not peers.there(peer) and not (torch and peer == "torch"):
                    yield f"missing {peer}: {name} {effect} ({peers.hint(peer)})"


def _run(name: str, given: argparse.Namespace) -> Result:
    print(f"== {name}", flush=True)
    needs = BENCHES[name].needs
    absent = [f"no {each}: {peers.hint(each)}" for each in needs if not peers.there(each)]
    if absent:
        result = Result(name=name, text="nothing was measured", left_out=absent)
    else:
        try:
            result = load(name).run(given)
        except RuntimeError as error:
            result = Result(name=name, text="", wrong=[str(error)])
        except Exception:  # the others are still worth measuring
            result = Result(name=name, text="", wrong=[traceback.format_exc().strip()])
    print(result.show(), flush=True)
    return result


def _parser(quick: bool) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="What allranks claims, measured beside its peers in the same run.",
        epilog="Exit 1 when something went wrong: lost output, a process left. "
        "A missed bar is told, no more.",
    )
    doors = parser.add_subparsers(dest="door", required=True, metavar="BENCH")
    every = doors.add_parser("all", help="one after the other; one JSON, and the table of the docs")
    every.add_argument("names", nargs="*", metavar="NAME", help="only these")
    benches = [every]
    for name, about in BENCHES.items():
        bench = load(name)
        text = (bench.__doc__ or "").strip()
        door = doors.add_parser(
            name,
            help=text.partition("\n\n")[0].replace("\n", " ").rstrip("."),
            description=text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        benches.append(door)
        for each in (door, every):
            bench.options(each)
            each.set_defaults(**(about.quick if quick else {}))
    for door in benches:
        _common(door)
    compare.options(doors.add_parser("compare", help="what became slower from OLD to NEW?"))
    publish.options(doors.add_parser("publish", help="write results into the docs"))
    peers.options(doors.add_parser("peers", help="list or install the peers"))
    return parser


def _common(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--json", type=Path, metavar="FILE", help="where the raw samples go")
    add("--quick", action="store_true", help="few rounds and small sizes: does it work?")
    what = "a Python that has torch (that of 'bench peers install torch', or this one)"
    add("--torch-python", metavar="PATH", help=what)
    add("--no-torch", action="store_true", help="leave out what needs torch")
    add("--slurm", metavar="PARTITION", help="of a Slurm cluster, with three idle hosts")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
