"""Count how often a reader of a call path changes modules: python scripts/call_path.py [PATH…]

Runs real jobs or a deployment with a server of their own, and follows every call below the function
that the path begins with. A call from one function to another counts once, however often it is
made. Of those that enter another module it prints how many there are, and how many come back to a
module that was entered before; then the same of the calls that the path's own room makes, its
package, as if the insides of other rooms were not read. --calls lists them all.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGE = "allranks"
# For the processes that are followed: where they write, and the functions that paths begin with.
FOLDER, BEGINNINGS = "CALL_PATH_FOLDER", "CALL_PATH_BEGINNINGS"
# Read by every Python that is started with its folder on PYTHONPATH.
MAIN = "import sys; from allranks.cli.entry import main; sys.exit(main())"
SITE = "import sys\nsys.path.append({scripts!r})\nimport call_path\ncall_path.follow()\n"


class CallPath(NamedTuple):
    """Where a call path begins, the commands of allranks by which a server or an agent takes it,
    each with its exit code, and those that end what still runs."""

    begins: str
    commands: dict[str, int]
    ends: tuple[str, ...] = ()

    @property
    def module(self) -> str:
        return self.begins.partition(":")[0]


# One that completes, and one that fails.
JOBS = {"run -q -e current -- true": 0, "run -q -e current -- false": 1}
SCORING = "def init(): pass\ndef run(data): return data\n"
DEPLOYMENT = """name: blue
endpoint_name: e
model: {path: .}
code_configuration: {code: ., scoring_script: score.py}
environment: current
"""
PATHS = {
    "job": CallPath("allranks.server.loop.reconcile:Loop._advance", JOBS),
    "agent": CallPath("allranks.agent.lifecycle.main:Agent.run", JOBS),
    "ranks": CallPath("allranks.agent.lifecycle.main:Agent._run_ranks", JOBS),
    "deployment": CallPath(
        "allranks.server.endpoints.controller:Controller.look",
        {
            "endpoint create e": 0,
            "deployment create -f blue.yml --all-traffic": 0,
            "endpoint invoke e --data {}": 0,
        },
        ("endpoint delete e --yes",),
    ),
}


class Call(NamedTuple):
    """From one function to another, both as MODULE:NAME."""

    caller: str
    callee: str

    @property
    def leaves(self) -> str:
        return self.caller.partition(":")[0]

    @property
    def enters(self) -> str:
        return self.callee.partition(":")[0]


def follow() -> None:
    """Write each new call below the beginnings that this process makes, in its order."""
    folder, beginnings = os.environ.get(FOLDER), os.environ.get(BEGINNINGS, "").split()
    if folder is None:
        return
    known: set[tuple[str, str, str]] = set()
    lock = threading.Lock()
    stacks = threading.local()

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event not in ("call", "return"):
            return
        module = frame.f_globals.get("__name__", "")
        if not isinstance(module, str) or not module.startswith(PACKAGE):
            return
        # Bodies of comprehensions and lambdas are read with the function that they stand in.
        name = frame.f_code.co_qualname.partition(".<locals>")[0]
        function = f"{module}:{name}"
        stack: list[tuple[str, str]] = stacks.__dict__.setdefault("stack", [])
        if event == "return":
            if stack and stack[-1][1] == function:
                stack.pop()
            return
        if not stack and function not in beginnings:
            return
        begins, caller = (stack[0][0], stack[-1][1]) if stack else (function, "")
        stack.append((begins, function))
        if not caller or any(part.endswith(":<module>") for _, part in stack):
            return
        with lock:
            if (begins, caller, function) not in known:
                known.add((begins, caller, function))
                with open(f"{folder}/{begins}", "a") as file:
                    file.write(f"{caller} {function}\n")

    threading.setprofile(profile)
    sys.setprofile(profile)


@contextlib.contextmanager
def followed(beginnings: list[str]) -> Iterator[tuple[Path, dict[str, str]]]:
    """A folder for a home and the calls, and the variables of commands that are followed."""
    with tempfile.TemporaryDirectory(prefix="call-path-") as name:
        folder = Path(name)
        (folder / "site").mkdir()
        site = SITE.format(scripts=str(Path(__file__).parent))
        (folder / "site" / "sitecustomize.py").write_text(site)
        (folder / "calls").mkdir()
        (folder / "code").mkdir()
        for file, text in (("score.py", SCORING), ("blue.yml", DEPLOYMENT)):
            (folder / "code" / file).write_text(text)
        env = {name: each for name, each in os.environ.items() if not name.startswith("ALLRANKS")}
        path = os.pathsep.join((str(folder / "site"), env.get("PYTHONPATH", "")))
        env |= {"PYTHONPATH": path.rstrip(os.pathsep), "ALLRANKS_HOME": str(folder / "home")}
        yield folder, env | {FOLDER: str(folder / "calls"), BEGINNINGS: " ".join(beginnings)}


def calls_of(path: CallPath) -> list[Call]:
    """The calls of a run between modules of ours, each once, in their order."""
    with followed([path.begins]) as (folder, env):

        def allranks(words: str) -> subprocess.CompletedProcess[str]:
            argv = [sys.executable, "-c", MAIN, *words.split()]
            return subprocess.run(
                argv, cwd=folder / "code", env=env, capture_output=True, text=True, check=False
            )

        try:
            for command, code in path.commands.items():
                if (done := allranks(command)).returncode != code:
                    raise SystemExit(f"call_path: {command} failed: {done.stderr[-1000:]}")
        finally:
            for command in (*path.ends, "server stop"):
                allranks(command)
        file = folder / "calls" / path.begins
        lines = file.read_text().splitlines() if file.exists() else []
    calls = dict.fromkeys(Call(*line.split()) for line in lines)
    return [call for call in calls if call.leaves != call.enters]


def counted(path: CallPath, calls: list[Call]) -> str:
    """How many calls enter a module, and how many of them one that was entered before."""
    modules = {call.enters for call in calls} - {path.module}
    return f"enters a module {len(calls)} times and comes back {len(calls) - len(modules)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="*", metavar="PATH", help=", ".join(PATHS))
    parser.add_argument("--calls", action="store_true", help="list the calls that enter a module")
    options = parser.parse_args()
    if unknown := set(options.paths) - set(PATHS):
        parser.error(f"no such path: {', '.join(sorted(unknown))}; there are {', '.join(PATHS)}")
    for name in options.paths or PATHS:
        path = PATHS[name]
        calls = calls_of(path)
        if not calls:
            raise SystemExit(f"call_path: {path.begins} was not called")
        if options.calls:
            print("\n".join(f"{call.caller} -> {call.callee}" for call in calls))
        room = path.module.rpartition(".")[0]
        own = [call for call in calls if call.leaves.rpartition(".")[0] == room]
        print(f"{name}: {path.begins} {counted(path, calls)}; {room} {counted(path, own)}")


if __name__ == "__main__":
    main()
