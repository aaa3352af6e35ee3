"""A sweep of trivial trials, two at a time, beside Optuna with subprocesses and Ray Tune."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median

from bench import peers, procs
from bench.home import Home
from bench.report import Bar, Result, spreads
from bench.rounds import Contender, Samples, alternate
from bench.stats import paired

CONCURRENT = 2
OURS, OPTUNA, TUNE = "allranks run --sweep", "Optuna, subprocess", "Ray Tune, subprocess"
SCRIPT = """
import sys
print("loss:", (float(sys.argv[1]) - 0.3) ** 2)
"""
BY_OPTUNA = """
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
BY_RAY = """
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
    tune = given.tune_python or peers.program("ray", "python")
    optuna = peers.program("optuna", "python") or sys.executable
    left_out = [] if tune else [f"Ray Tune (--tune-python, or {peers.hint('ray')})"]
    with Home() as home:
        work = home.work
        for name, text in (
            ("trial.py", SCRIPT),
            ("by_optuna.py", BY_OPTUNA),
            ("by_ray.py", BY_RAY),
        ):
            (work / name).write_text(text)
        home.allranks("server", "start")
        trial = [sys.executable, str(work / "trial.py")]
        counts = [str(given.trials), str(CONCURRENT)]
        words = [*trial, *counts]

        def script(python: str, name: str, *more: str) -> Callable[[], object]:
            return partial(procs.run, [python, name, *words, *more], cwd=work, env=home.env)

        ways = [
            Contender(name=OURS, once=partial(_allranks, home, trial, given.trials)),
            Contender(name=OPTUNA, once=script(optuna, "by_optuna.py")),
        ]
        if tune:
            ways.append(Contender(name=TUNE, once=script(tune, "by_ray.py", str(work / "ray"))))
        samples, orders = alternate(ways, given.sweeps)
        alone = [*trial, "0.5"]
        own = [procs.timed(partial(procs.run, alone, cwd=work, env=home.env)) for _ in range(15)]
    title = f"{given.trials} trials, {CONCURRENT} at a time, {given.sweeps} sweeps, seconds"
    return Result(
        name="sweep",
        text=spreads(title, samples),
        samples={"s": samples},
        data={"trials": given.trials, "orders": orders, "script_seconds": own},
        bars=list(_bars(samples, given.trials, median(own))),
        wrong=home.left,
        left_out=left_out,
    )


def _bars(samples: Samples, trials: int, own: float) -> Iterator[Bar]:
    ours = samples[OURS]
    for name, most in ((OPTUNA, 1.5), (TUNE, 0.5)):
        if name in samples:
            ratio = median(paired(ours, samples[name]))
            yield Bar(what=f"allranks / {name}", found=ratio, most=most)
    beyond = median(ours) * CONCURRENT / trials - own
    yield Bar(what="seconds of a trial beyond its script", found=beyond, most=0.15)


def _allranks(home: Home, trial: list[str], trials: int) -> None:
    home.allranks(
        *("run", "-q", "--sweep", "x=uniform(0,1)", "--seed", "1", "--trials", str(trials)),
        *("--concurrent", str(CONCURRENT), "--minimize", "loss", "-m", "loss=loss: (.*)"),
        *("--", *trial, "${{search_space.x}}"),
    )
