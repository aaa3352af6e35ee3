"""Images per second of a training script: under allranks, and the same ranks by hand.

On CPUs --ranks of examples/digits; with --gpu one rank for each GPU of examples/amp. By hand they
have the same variables and OMP_NUM_THREADS, and their output goes to files. --workers adds worker
processes that load the images, and --talk lines of 80 characters from each rank.
"""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench import peers, procs
from bench.home import Home
from bench.report import Bar, Result, nothing, spreads
from bench.rounds import Contender, Samples, alternate
from bench.stats import coverage_of_range, interval, paired

OURS, BY_HAND = "allranks", "by hand"
EXAMPLES = Path(__file__).parents[1] / "examples"
_LINE = re.compile(r"^epoch (\d+)/\d+  rank (\d+) .* (\d+) images/s", re.MULTILINE)

# The first epoch reads the images from the disk and warms the allocator.
_WARM_UP = 1

# Of the throughput by hand, how much has to be left under allranks.
_LEAST = 0.99

# The script of a rank that talks, or whose images worker processes load.
_AROUND = """
import runpy, sys, threading
from torch.utils.data import DataLoader
workers, lines, *sys.argv = int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]
if workers:
    make = DataLoader.__init__
    DataLoader.__init__ = lambda *loads, **how: make(*loads, **how, num_workers=workers)
done = threading.Event()
def talk():
    while lines and not done.wait(0.1):
        for _ in range(lines // 10):
            sys.stdout.write(79 * "." + "\\n")
talks = threading.Thread(target=talk)
talks.start()
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    done.set()
    talks.join()
"""


class Script(NamedTuple):
    """``size`` are the words of ``allranks run`` that ask for its ranks."""

    folder: Path
    words: list[str]
    ranks: int
    size: list[str]


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pairs", type=int, default=5, metavar="N", help="pairs of runs (5)")
    parser.add_argument("--epochs", type=int, default=12, metavar="E", help="epochs of a run (12)")
    parser.add_argument("--ranks", type=int, default=3, metavar="N", help="on CPUs (3)")
    what = "of each rank that load its images, on CPUs (0: it does so itself)"
    parser.add_argument("--workers", type=int, default=0, metavar="N", help=what)
    what = "that each rank prints a second, on CPUs (0)"
    parser.add_argument("--talk", type=int, default=0, metavar="LINES", help=what)
    what = "train on the GPUs of this machine instead of its CPUs"
    parser.add_argument("--gpu", action="store_true", help=what)


def run(given: argparse.Namespace) -> Result:
    torch = peers.torch(given)
    if torch is None or not peers.has(torch.python, "numpy", "PIL", "sklearn"):
        needs = "torch, numpy, pillow and scikit-learn: --torch-python"
        return nothing("train", f"all of it (needs {needs}, or {peers.hint('torch')})")
    gpus = _gpus(torch.python)
    if given.gpu and not gpus:
        return nothing("train", f"all of it (torch {torch.version} sees no CUDA GPU here)")
    with Home() as home:
        script = _on_gpus(given, gpus) if given.gpu else _on_cpus(given, home, torch.python)
        pair = _Pair(home, torch.python, script)
        start = lambda: home.allranks("server", "start")  # noqa: E731
        ways = [
            Contender(name=OURS, once=pair.allranks, before=start),
            Contender(name=BY_HAND, once=pair.by_hand),
        ]
        samples, orders = alternate(ways, given.pairs)
    ratios = paired(samples[OURS], samples[BY_HAND])
    device = f"{gpus[0]} × {len(gpus)}" if given.gpu else "CPUs"
    return Result(
        name="train",
        text=_text(samples, ratios, f"images/s, {script.ranks} ranks, {device}"),
        samples={"images/s": samples},
        data={
            "pairs": given.pairs,
            "epochs": given.epochs,
            "workers": given.workers,
            "lines_a_second": given.talk,
            "gpus": gpus,
            "versions": {"torch": torch.version},
            "omp_num_threads": pair.threads,
            "orders": orders,
            "ratios": ratios,
        },
        bars=[Bar(what="median ratio of throughput", found=median(ratios), least=_LEAST)],
        wrong=home.left,
    )


def _gpus(python: str) -> list[str]:
    """The names of those that torch sees."""
    names = "[torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())]"
    return peers.said([python, "-c", f"import torch; print('\\n'.join({names}))"]).splitlines()


def _on_cpus(given: argparse.Namespace, home: Home, python: str) -> Script:
    data, folder, ranks = home.work / "digits", EXAMPLES / "digits", given.ranks
    procs.run([python, folder / "make_data.py", data], cwd=home.work, env=procs.environment())
    words = ["train.py", "--data", str(data), "--epochs", str(given.epochs)]
    if given.workers or given.talk:
        words = ["-c", _AROUND, str(given.workers), str(given.talk), *words]
    return Script(folder, words, ranks, ["-n", str(ranks)])


def _on_gpus(given: argparse.Namespace, gpus: list[str]) -> Script:
    """Enough work for a GPU that launching its kernels is not all that counts."""
    ranks = str(len(gpus))
    size = ["--images", "8192", "--side", "160", "--width", "64", "--batch-size", "256"]
    words = ["train.py", "--epochs", str(given.epochs), *size]
    return Script(EXAMPLES / "amp", words, len(gpus), ["-p", ranks, "--gpus", ranks])


def _text(samples: Samples, ratios: list[float], title: str) -> str:
    low, high = interval(ratios)
    text = spreads(f"{title}, {len(ratios)} pairs", samples, 0)
    text += (
        f"\nratio allranks / by hand: median {median(ratios):.3f}, 95 % bootstrap interval "
        f"{low:.3f} to {high:.3f}\npairs: {', '.join(f'{ratio:.3f}' for ratio in ratios)} "
        f"(their range covers the median at {coverage_of_range(len(ratios)):.1%}, sign test)"
    )
    if low < _LEAST <= high:
        text += f"\nundecided: the interval holds {_LEAST}; more --pairs, or a quieter machine"
    return text


class _Pair:
    """The two ways to run the script; each answers with images per second of all ranks together."""

    def __init__(self, home: Home, python: str, script: Script) -> None:
        self._home, self._script = home, script
        self._argv = [python, *script.words]
        self._logs = home.work / "by hand"
        self._logs.mkdir()
        words = ("run", "-q", *script.size, "-d", "pytorch", "--rank", "0", "--")
        self.threads = home.allranks(*words, "printenv", "OMP_NUM_THREADS").stdout.strip()

    def allranks(self) -> float:
        words = ["run", *self._script.size, "-d", "pytorch", "--", *self._argv]
        done = self._home.allranks(*words, cwd=self._script.folder)
        return images_per_second(done.stdout, self._script.ranks)

    def by_hand(self) -> float:
        # allranks sets both, too.
        more = {"OMP_NUM_THREADS": self.threads, "PYTHONUNBUFFERED": "1"}
        procs.by_hand(
            [*self._argv, "--out", self._logs / "outputs"],
            ranks=self._script.ranks,
            cwd=self._script.folder,
            env=procs.environment(**more),
            logs=self._logs,
        )
        text = "".join(log.read_text() for log in self._logs.glob("*.txt"))
        return images_per_second(text, self._script.ranks)


def images_per_second(output: str, ranks: int) -> float:
    """The median epoch's, the ranks' own words added up; without the first."""
    epochs: dict[int, dict[int, int]] = defaultdict(dict)
    for epoch, rank, speed in _LINE.findall(output):
        epochs[int(epoch)][int(rank)] = int(speed)
    speeds = [sum(each.values()) for epoch, each in epochs.items() if epoch > _WARM_UP]
    if not speeds or any(len(each) != ranks for each in epochs.values()):
        raise RuntimeError(f"the script did not tell each rank's images/s:\n{output[-2000:]}")
    return median(speeds)
