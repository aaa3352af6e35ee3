"""A sweep of trivial trials, two at a time, beside Optuna with subprocesses and Ray Tune."""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from bench import procs
from bench.home import Home
from bench.report import Bar, Result, table
from bench.stats import spread

CONCURRENT = 2
SCRIPT = """
import sys
print("loss:", (float(sys.argv[1]) - 0.3) ** 2)
"""
OPTUNA = """
import subprocess, sys
import optuna

def objective(trial):
    x = trial.suggest_float("x", 0, 1)
    done = subprocess.run(sys.argv[1:3] + [str(x)], capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])

optuna.logging.set_verbosity(optuna.logging.ERROR)
study = optuna.create_study(sampler=optuna.samplers.RandomSampler(1))
study.optimize(objective, n_trials=int(sys.argv[3]), n_jobs=int(sys.argv[4]))
assert len(study.trials) == int(sys.argv[3])
"""
RAY = """
import subprocess, sys
import ray
from ray import tune

argv, trials, concurrent = sys.argv[1:3], int(sys.argv[3]), int(sys.argv[4])

def objective(config):
    done = subprocess.run(argv + [str(config["x"])], capture_output=True, text=True, check=True)
    tune.report({"loss": float(done.stdout.split()[-1])})

ray.init(num_cpus=concurrent, include_dashboard=False, log_to_driver=False, configure_logging=False)
tuner = tune.Tuner(
    tune.with_resources(objective, {"cpu": 1}),
    param_space={"x": tune.uniform(0, 1)},
    tune_config=tune.TuneConfig(
        metric="loss", mode="min", num_samples=trials, max_concurrent_trials=concurrent
    ),
    run_config=tune.RunConfig(verbose=0, storage_path=sys.argv[5]),
)
assert len(tuner.fit()) == trials
ray.shutdown()
"""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--trials", type=int, default=64, metavar="N", help="of each sweep (64)")
    parser.add_argument("--sweeps", type=int, default=5, metavar="N", help="of each (5)")
    parser.add_argument("--tune-python", metavar="PATH", help="a Python with ray[tune]")


def run(given: argparse.Namespace) -> Result:
    left_out = [] if given.tune_python else ["Ray Tune (needs --tune-python)"]
    samples: dict[str, list[float]] = {}
    script_seconds: list[float] = []
    order = random.Random(1)
    with Home() as home:
        work = home.work
        for name, text in (("trial.py", SCRIPT), ("by_optuna.py", OPTUNA), ("by_ray.py", RAY)):
            (work / name).write_text(text)
        home.allranks("server", "start")
        trial = [sys.executable, str(work / "trial.py")]
        counts = [str(given.trials), str(CONCURRENT)]
        ways: dict[str, Callable[[], None]] = {
            "allranks run --sweep": lambda: _allranks(home, trial, given.trials),
            "Optuna, subprocess": lambda: _script(
                home, sys.executable, "by_optuna.py", [*trial, *counts]
            ),
        }
        if given.tune_python:
            ways["Ray Tune, subprocess"] = lambda: _script(
                home, given.tune_python, "by_ray.py", [*trial, *counts, str(work / "ray")]
            )
        for number in range(given.sweeps + 1):
            for name in order.sample(sorted(ways), len(ways)):
                began = time.monotonic()
                ways[name]()
                if number:  # the first round reads everything from the disk
                    samples.setdefault(name, []).append(time.monotonic() - began)
            script_seconds += [_timed(trial) for _ in range(5)]
    found = {name: spread(values) for name, values in samples.items()}
    own = spread(script_seconds)["median"]
    rows = [
        (name, *(f"{each[key]:.2f}" for key in ("median", "min", "max")))
        for name, each in found.items()
    ]
    return Result(
        name="sweep",
        text=table(
            (
                f"{given.trials} trials, {CONCURRENT} at a time, {given.sweeps} sweeps, seconds",
                *("median", "min", "max"),
            ),
            rows,
        ),
        data={"samples": samples, "script_seconds": script_seconds},
        bars=list(_bars(samples, given.trials, own)),
        wrong=home.left,
        left_out=left_out,
    )


def _bars(samples: dict[str, list[float]], trials: int, own: float) -> Iterator[Bar]:
    ours = samples["allranks run --sweep"]
    for name, most in (("Optuna, subprocess", 1.5), ("Ray Tune, subprocess", 0.5)):
        if name in samples:
            ratios = [a / b for a, b in zip(ours, samples[name], strict=True)]
            yield Bar(what=f"allranks / {name}", found=spread(ratios)["median"], most=most)
    beyond = spread(ours)["median"] * CONCURRENT / trials - own
    yield Bar(what="seconds of a trial beyond its script", found=beyond, most=0.15)


def _allranks(home: Home, trial: list[str], trials: int) -> None:
    home.allranks(
        *("run", "-q", "--sweep", "x=uniform(0,1)", "--seed", "1", "--trials", str(trials)),
        *("--concurrent", str(CONCURRENT), "--minimize", "loss", "-m", "loss=loss: (.*)"),
        *("--", *trial, "${{search_space.x}}"),
    )


def _script(home: Home, python: str, script: str, words: list[str]) -> None:
    procs.run([python, str(home.work / script), *words], cwd=home.work, env=home.env)


def _timed(trial: list[str]) -> float:
    began = time.monotonic()
    subprocess.run([*trial, "0.5"], check=True, capture_output=True)
    return time.monotonic() - began
