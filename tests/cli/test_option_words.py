"""Errors name what was typed: options on a command line, keys in a file."""

from __future__ import annotations

import argparse
import shlex

import pytest

from allranks.cli.main import main
from allranks.cli.submit.option_words import in_option_words
from allranks.errors import Problem, SpecError

_SWEEP = ("--sweep", "lr=uniform(0,1)", "--minimize", "loss")
_GRID = ("--sweep", "lr=choice(1,2)", "--sampler", "grid")


@pytest.fixture(autouse=True)
def _place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ALLRANKS_HOME", str(tmp_path / "home"))


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        (("-n", "0"), "-n/--nodes: must be at least 1, not `0`", "leave it out"),
        (("-p", "0"), "-p/--procs-per-node: must be", "leave it out"),
        (("--cpus", "0"), "--cpus: 0.0 is not a positive number", "CPUs"),
        (("--timeout", "0"), "--timeout: must be more than 0", "leave it out"),
        (("--name", "a b"), "--name: must have", "as in `digits`"),
        (("--state", ""), "--state: must have", "as in `digits`"),
        (("--warm", ""), "--warm: must be the name of a Python module", "import"),
        (("-i", "a b=."), "-i 'a b': must have", "as in `data`"),
        (("-o", "a="), "-o/--output: the output a has no path", "-o a=results"),
        (("--env", "=x"), "--env: '=x' has no name", "NAME=VALUE"),
        (("--tag", "a=1", "--tag", "a=2"), "--tag: 'a' is given twice", "once"),
        (("-m", "l=a("), "-m l: is not a regular expression", "`\\(`"),
        (("-m", "=(a)"), "'=(a)' is not NAME=REGEX", "keras"),
        (("-m", "l=(a)", "--metric-rank", "7"), "--metric-rank: the job has no rank 7", "0 to 0"),
        (("--metric-rank", "0"), "--metric-rank needs -m", "add -m"),
        (("-c", ""), "--compute: must not be empty", "leave it out"),
        (("-C", ""), "--code: must not be empty", "leave it out"),
        (("--workers", "0"), "need TensorFlow", "-d tensorflow"),
        (("--set", "resources.instance_count=0"), "resources.instance_count: must", "leave"),
        (("--detach", "--raw"), "--raw: not available with --detach", "leave one"),
        (("--detach", "--no-prefix"), "--no-prefix: not available with --detach", "leave one"),
        ((*_SWEEP, "--trials", "0"), "--trials: must be at least 1, not `0`", "leave it out"),
        ((*_SWEEP, "--concurrent", "0"), "--concurrent: must be at least 1, not `0`", "leave"),
        ((*_SWEEP, "--timeout", "0"), "--timeout: must be more than 0", "leave it out"),
        ((*_SWEEP, "-n", "0"), "-n/--nodes: must be at least 1", "leave it out"),
        ((*_SWEEP, "--no-fold"), "--no-fold: not available with --sweep", "leave one"),
        ((*_SWEEP, "--sampler", "grid"), "--sweep 'lr=uniform(0,1)': a grid", "write choice(…)"),
        ((*_SWEEP, "--sampler", "asha", "--stop-early", "median"), "--stop-early: asha", "random"),
        ((*_GRID, "--seed", "3"), "--seed: `seed` is not a key", "does not go with this `type`"),
        ((*_GRID, "--stop-early", "median"), "--stop-early needs --minimize", "--minimize loss"),
        (
            ("--sweep", "x=loguniform(1e-1,1e-5)", "--minimize", "l"),
            "--sweep: min_value is more than max_value: x=loguniform(1e-1,1e-5)",
            "exchange the two",
        ),
        (
            ("--sweep", "x=quniform(0,1,0)", "--minimize", "l"),
            "--sweep 'x=quniform(0,1,0)': q must be more than 0",
            "write quniform(min_value, max_value, q)",
        ),
    ],
)
def test_run_names_its_options(words, error, hint, capsys):
    dry = () if "--detach" in words else ("--dry-run",)
    assert main(["run", *dry, *words, "--", "true"]) == 2
    errors = capsys.readouterr().err
    assert error in errors
    assert hint in errors.partition("hint: ")[2]
    assert errors.count("error: ") == 1, "one cause, one error"


def test_of_a_file_of_a_sweep_the_keys_are_named(tmp_path, capsys):
    space = "search_space: {lr: {type: uniform, min_value: 1, max_value: 0}}\n"
    (tmp_path / "space.yml").write_text(f"{space}limits: {{trial_timeout: 0}}\n")
    words = ["run", "--dry-run", "--sweep", "space.yml", "--minimize", "l"]
    assert main([*words, "--", "true"]) == 2
    errors = capsys.readouterr().err
    assert "error: search_space.lr: `min_value` (1) is more than `max_value` (0)" in errors
    assert "error: limits.trial_timeout: must be more than 0" in errors


def test_samplers_and_seeds_reach_the_sweep(tmp_path, monkeypatch):
    specs = []

    class Enough(BaseException):
        """Instead of submitting it."""

    def keep(spec, _):
        specs.append(spec)
        raise Enough

    monkeypatch.setattr("allranks.cli.submit.run.outputs_here", keep)
    (tmp_path / "space.yml").write_text(
        "search_space: {x: {type: randint, upper: 3}}\nsampling_algorithm: bayesian\n"
    )
    for words in (
        (*_SWEEP, "--sampler", "sobol", "--seed", "2"),
        ("--sweep", "space.yml", "--minimize", "l", "--seed", "2"),
    ):
        with pytest.raises(Enough):
            main(["run", *words, "--", "true"])
    algorithms = [spec["sampling_algorithm"] for spec in specs]
    assert algorithms == [
        {"type": "random", "rule": "sobol", "seed": 2},
        {"type": "bayesian", "seed": 2},
    ]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("top --once --interval 2", "--interval: not allowed with argument --once"),
        ("job stacks x --all --collectives", "not allowed with"),
        (
            "datastore create x --credentials f --credentials-from-env",
            "--credentials-from-env: not allowed with argument --credentials",
        ),
        ("compute wait local --min-nodes 0", "0 is less than 1"),
        ("import . --data d", "--data needs --write"),
        ("import runs . --write", "--write: not available with import runs"),
        ("data create x --path ''", "--path is empty"),
    ],
)
def test_options_without_effect_are_refused(words, error, capsys):
    assert main(shlex.split(words)) == 2
    assert error in capsys.readouterr().err


def test_the_session_of_a_run_is_its_option():
    options = argparse.Namespace(inside="dev-x", set=[], sweep=[])
    error = in_option_words(SpecError(Problem("dev-x is no session", "inside")), options)
    assert error.problems[0].where == "--in"
