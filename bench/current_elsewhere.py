"""What it costs that a node lacks the current Python: making it again beside `uv pip sync` of the
same list, and a later job that finds it. The server's mounts hide the client's folder.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from statistics import median

from uv import find_uv_bin

from allranks.agent.environments.pip_conf import for_uv
from bench import procs
from bench.home import Home
from bench.report import Bar, Result, spreads
from bench.rounds import Contender, alternate
from bench.stats import paired

WITHOUT, LATER = "a Python that the node has", "a Python made for an earlier job"
OURS, UVS = "a Python to be made", "uv venv && uv pip sync"
_PROJECT = """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "{name}"
version = "1.0"
"""


def options(parser: argparse.ArgumentParser) -> None:
    many, some = "rounds (10)", "packages of the index, separated by commas"
    parser.add_argument("--elsewhere-runs", type=int, default=10, metavar="N", help=many)
    parser.add_argument(
        "--elsewhere-packages", default="numpy,torch==2.13.0", metavar="P,…", help=some
    )


def run(given: argparse.Namespace) -> Result:
    with Home() as home:
        laptop = home.work / "laptop"
        env = _client(home, laptop, given.elsewhere_packages.split(","))
        client = partial(procs.run, home.argv("run", "--", "true"), cwd=home.work / "empty")
        here = {**env, "VIRTUAL_ENV": str(home.work / "here")}
        once = partial(client, env=env)
        gone = partial(shutil.rmtree, home.folder / "environments", ignore_errors=True)
        unsynced = partial(shutil.rmtree, home.work / "synced", ignore_errors=True)
        contenders = [
            Contender(name=WITHOUT, once=partial(client, env=here)),
            Contender(name=OURS, once=once, before=gone),
            Contender(name=LATER, once=once, before=once),
            Contender(name=UVS, once=partial(_sync, home, env), before=unsynced),
        ]
        samples, orders = alternate(contenders, given.elsewhere_runs)
    made = [a - b for a, b in zip(samples[OURS], samples[WITHOUT], strict=True)]
    later = median(a - b for a, b in zip(samples[LATER], samples[WITHOUT], strict=True))
    ratio = median(paired(made, samples[UVS]))
    return Result(
        name="current_elsewhere",
        text=spreads(f"{given.elsewhere_runs} rounds, seconds", samples, 3),
        samples={"s": samples},
        data={"packages": given.elsewhere_packages, "orders": orders},
        bars=[
            Bar(what="what making it adds to a job / uv itself", found=ratio, most=1.2),
            Bar(what="a later job, seconds more", found=later, most=0.3),
        ],
        wrong=home.left,
    )


def _client(home: Home, laptop: Path, packages: list[str]) -> Mapping[str, str]:
    """The variables of a client with an environment that only it sees: packages of the index, a
    wheel of its own and a package in development."""
    (home.work / "empty").mkdir()
    uv, site = [find_uv_bin()], for_uv(home.env).variables
    env = {**home.env, **site, "UV_NO_CONFIG": "1"}
    for name in ("own", "edited"):
        (laptop / name / name).mkdir(parents=True)
        (laptop / name / name / "__init__.py").touch()
        (laptop / name / "pyproject.toml").write_text(_PROJECT.format(name=name))
    for prefix in (laptop / "venv", home.work / "here"):
        procs.run([*uv, "venv", "--python", sys.executable, prefix], cwd=home.work, env=env)
    words: list[str | Path] = [*uv, "pip", "install", "--python", laptop / "venv", *packages]
    words += [laptop / "own", "-e", laptop / "edited"]
    procs.run(words, cwd=home.work, env=env)
    hide = f"mount -t tmpfs none {shlex.quote(str(laptop))}"
    start = shlex.join(home.argv("server", "start"))
    as_root = ["--map-root-user"] if os.geteuid() else []
    argv = ["unshare", "--mount", *as_root, "sh", "-c", f"{hide} && exec {start}"]
    subprocess.run(argv, cwd="/", env=home.env, stdin=subprocess.DEVNULL, check=True)
    return {
        **home.env,
        "ALLRANKS_SERVER": json.loads((home.folder / "server.json").read_text())["url"],
        "ALLRANKS_TOKEN": (home.folder / "token").read_text(),
        "ALLRANKS_HOME": str(home.work / "client"),
        "VIRTUAL_ENV": str(laptop / "venv"),
    }


def _sync(home: Home, env: Mapping[str, str]) -> None:
    """What uv takes for the list that the client has made."""
    files = (home.work / "client" / "python").glob("*/lock.json")
    file = next(each for each in files if env["VIRTUAL_ENV"] in each.read_text())
    rows = json.loads(file.read_text())["python"]["requirements"]
    requirements, goal, uv = home.work / "list.txt", home.work / "synced", find_uv_bin()
    requirements.write_text("".join(f"{row}\n" for row in rows))
    more = {**for_uv(env).variables, "UV_NO_CONFIG": "1", "CURRENT_PYTHON_WHEELS": str(file.parent)}
    procs.run([uv, "venv", goal], cwd=home.work, env={**env, **more})
    words: list[str | Path] = [uv, "pip", "sync", "--python", goal, requirements]
    procs.run(words, cwd=home.work, env={**env, **more})
