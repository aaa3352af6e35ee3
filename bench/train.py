"""Images per second of the demo's training script: under allranks, and the same ranks by hand."""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from pathlib import Path
from statistics import median

from bench import peers, procs
from bench.home import Home
from bench.report import Bar, Result, table
from bench.stats import coverage_of_range, interval, paired, spread

RANKS = 3
EXAMPLE = Path(__file__).parents[1] / "examples" / "digits"
_LINE = re.compile(r"^epoch (\d+)/\d+  rank (\d+) .* (\d+) images/s$", re.MULTILINE)

# The first epoch reads the images from the disk and warms the allocator.
_WARM_UP = 1

# Of the throughput by hand, how much has to be left under allranks.
_LEAST = 0.98


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pairs", type=int, default=5, metavar="N", help="pairs of runs (5)")
    parser.add_argument("--epochs", type=int, default=12, metavar="E", help="epochs of a run (12)")


def run(given: argparse.Namespace) -> Result:
    torch = None if given.no_torch else peers.torch(given.torch_python)
    if torch is None or not peers.has(torch.python, "numpy", "PIL", "sklearn"):
        return Result(
            name="train",
            text="nothing was measured",
            data={},
            left_out=["all of it (needs torch, numpy, pillow and scikit-learn: --torch-python)"],
        )
    with Home() as home:
        data = home.work / "digits"
        procs.run(
            [torch.python, EXAMPLE / "make_data.py", data], cwd=home.work, env=procs.environment()
        )
        threads = home.allranks(
            "run", "-q", "-n", str(RANKS), "--rank", "0", "--", "printenv", "OMP_NUM_THREADS"
        )
        pair = _Pair(home, torch.python, data, given.epochs, threads.stdout.strip())
        samples: dict[str, list[float]] = {"allranks": [], "by hand": []}
        pair.by_hand()  # not counted: the first reads torch and the images from the disk
        for number in range(given.pairs):
            order = ["allranks", "by hand"] if number % 2 else ["by hand", "allranks"]
            for name in order:
                samples[name].append(pair.allranks() if name == "allranks" else pair.by_hand())
    ratios = paired(samples["allranks"], samples["by hand"])
    low, high = interval(ratios)
    rows = [
        (name, *(f"{spread(values)[key]:.0f}" for key in ("median", "min", "max")))
        for name, values in samples.items()
    ]
    text = table((f"images/s, {RANKS} ranks, {given.pairs} pairs", "median", "min", "max"), rows)
    text += (
        f"\nratio allranks / by hand: median {median(ratios):.3f}, 95 % bootstrap interval "
        f"{low:.3f} to {high:.3f}\npairs: {', '.join(f'{ratio:.3f}' for ratio in ratios)} "
        f"(their range covers the median at {coverage_of_range(len(ratios)):.1%}, sign test)"
    )
    if low < _LEAST <= high:
        text += f"\nundecided: the interval holds {_LEAST}; more --pairs, or a quieter machine"
    return Result(
        name="train",
        text=text,
        data={
            "pairs": given.pairs,
            "epochs": given.epochs,
            "versions": {"torch": torch.version},
            "omp_num_threads": pair.threads,
            "samples_images_per_s": samples,
            "ratios": ratios,
            "interval_95": [low, high],
        },
        bars=[Bar(what="median ratio of throughput", found=median(ratios), least=_LEAST)],
        wrong=home.left,
    )


class _Pair:
    """The two ways to run the script; each answers with images per second of all ranks together."""

    def __init__(self, home: Home, python: str, data: Path, epochs: int, threads: str) -> None:
        self.threads = threads
        self._home = home
        self._script = ["train.py", "--data", str(data), "--epochs", str(epochs)]
        self._python = python
        self._logs = home.work / "by hand"
        self._logs.mkdir()

    def allranks(self) -> float:
        self._home.allranks("server", "start")
        done = self._home.allranks(
            "run", "-n", str(RANKS), "--", self._python, *self._script, cwd=EXAMPLE
        )
        return images_per_second(done.stdout)

    def by_hand(self) -> float:
        env = (
            procs.environment(OMP_NUM_THREADS=self.threads) if self.threads else procs.environment()
        )
        procs.by_hand(
            [self._python, *self._script, "--out", self._logs / "outputs"],
            ranks=RANKS,
            cwd=EXAMPLE,
            env=env | {"PYTHONUNBUFFERED": "1"},  # allranks sets it too
            logs=self._logs,
        )
        return images_per_second("".join(log.read_text() for log in self._logs.glob("*.txt")))


def images_per_second(output: str) -> float:
    """The median epoch's, the ranks' own words added up; without the first."""
    epochs: dict[int, dict[int, int]] = defaultdict(dict)
    for epoch, rank, speed in _LINE.findall(output):
        epochs[int(epoch)][int(rank)] = int(speed)
    speeds = [sum(ranks.values()) for epoch, ranks in epochs.items() if epoch > _WARM_UP]
    if not speeds or any(len(ranks) != RANKS for ranks in epochs.values()):
        raise RuntimeError(f"the script did not tell each rank's images/s:\n{output[-2000:]}")
    return median(speeds)
