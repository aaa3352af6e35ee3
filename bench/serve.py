"""Endpoints: the router beside plain uvicorn with the same app, and requests while all changes.

Both contenders are the same replica, asked through the router and at its own port.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import os
import pickle
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from bench.home import Home
from bench.load import Answer, Client, saturated, steady
from bench.report import Bar, Result, spreads
from bench.rounds import Contender, alternate

APP = """
import asyncio, os
async def app(scope, receive, send):
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body")
    if body == b"wait":
        await asyncio.sleep(5)
    text = f"{os.getpid()} {os.environ['PORT']}".encode()
    headers = [(b"content-length", str(len(text)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": text})
"""
FILE = """
name: {name}
endpoint_name: e
code: src
command: {python} -m uvicorn app:app --port $PORT --no-access-log --lifespan off
environment_variables: {{V: "{version}"}}
instance_count: {count}
request_settings:
  request_timeout_ms: 30000
  max_queue_wait_ms: 30000
  max_concurrent_requests_per_instance: 1000
"""
SLEEPER = """
name: default
endpoint_name: sleeper
model: azureml:birds:1
warm: [sklearn, joblib]
scale_settings: {min_instances: 0, scale_down_delay: 1}
"""
CALLERS = 32
RATE = 200.0
# Seconds before the delays count: a caller that opens a connection for each of its first requests
# measures that, which is a tenth of a second of backlog.
WARM_UP = 1.0


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--serve-rounds", type=int, default=5, metavar="N", help="of router and uvicorn (5)")
    add("--serve-seconds", type=float, default=5.0, metavar="S", help="of load a round (5)")
    number = "requests while all changes, and half as many for the weights (20000)"
    add("--serve-requests", type=int, default=20000, metavar="N", help=number)
    add("--deploys", type=int, default=5, metavar="N", help="of a model, and returns (5)")


def run(given: argparse.Namespace) -> Result:
    with Home() as home:
        # `python` of replicas is the one that has scikit-learn.
        home.env["PATH"] = f"{Path(sys.executable).parent}:{home.env['PATH']}"
        (home.work / "src").mkdir()
        (home.work / "src" / "app.py").write_text(APP)
        home.allranks("endpoint", "create", "e", "--auth-mode", "none")
        _deploy(home, "create", "blue", "--all-traffic")
        _deploy(home, "create", "green")
        url = home.told("endpoint", "show", "e", "--json")["scoring_uri"]
        rates, delays = _beside_uvicorn(url, given)
        weights = _weights(home, url, given.serve_requests // 2)
        failed, changes = _while_all_changes(home, url, given.serve_requests)
        killed = _killed(home, url)
        left_out, times = [], dict[str, list[float]]()
        if importlib.util.find_spec("sklearn") is None:
            left_out.append("no scikit-learn: model deploy, rollback, scale from zero")
        else:
            times = _model(home, given.deploys)
    ratio = median(rates["router"]) / median(rates["uvicorn"])
    bars = [
        Bar(what="saturated, of uvicorn's rate", found=ratio, least=0.35),
        Bar(
            what="99 % at half of its rate, ms more than uvicorn",
            found=median(delays["router"]) - median(delays["uvicorn"]),
            most=3.0,
        ),
        Bar(what="weights, percent of the requests beside", found=weights, most=1.0),
        Bar(what=f"failed of {given.serve_requests} while all changes", found=failed, most=0.0),
    ]
    limits = {"model deploy": 1.5, "rollback": 1.0, "from zero": 3.0}
    bars += [Bar(what=f"{k}, s", found=median(v), most=limits[k]) for k, v in times.items()]
    tables = [
        spreads(f"saturated, {CALLERS} callers, requests/s", rates, 0),
        spreads("99 % of the requests at half of the router's rate, ms", delays, 2),
        f"under {RATE:g} requests/s: {changes}",
        spreads("to the first answer, s", times),
    ]
    return Result(
        name="serve",
        text="\n\n".join(tables),
        samples={"requests/s": rates, "ms": delays, "s": times},
        data={"requests": given.serve_requests, "changes": changes, "failed": failed},
        bars=bars,
        wrong=[*killed, *home.left],
        left_out=left_out,
    )


def _file(home: Home, name: str, version: int = 1, count: int = 1) -> Path:
    file = home.work / f"{name}.yml"
    keys = {"name": name, "python": sys.executable, "version": version, "count": count}
    file.write_text(FILE.format(**keys))
    return file


def _deploy(home: Home, verb: str, name: str, *words: str, **keys: int) -> None:
    home.allranks("deployment", verb, "-f", _file(home, name, **keys), "-q", *words)


def _beside_uvicorn(
    url: str, given: argparse.Namespace
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Requests a second of a closed loop, and the milliseconds of 99 % in an open one."""
    (answer,) = saturated(url, 1, count=1)
    port = answer.body.split()[1].decode()
    urls = {"router": url, "uvicorn": f"http://127.0.0.1:{port}/score"}

    def rate(url: str) -> float:
        answers = _all_right(saturated(url, CALLERS, seconds=given.serve_seconds))
        return len(answers) / float(given.serve_seconds)

    def delay(url: str) -> float:
        count = int(half * given.serve_seconds)
        answers = _all_right(steady(url, half, count, warm_up=WARM_UP))
        times = sorted(answer.seconds for answer in answers)
        return times[int(0.99 * count)] * 1000

    def contenders(measure: Callable[[str], float]) -> list[Contender]:
        return [
            Contender(name=name, once=lambda url=url: measure(url))  # type: ignore[misc]
            for name, url in urls.items()
        ]

    rates, _ = alternate(contenders(rate), given.serve_rounds)
    half = median(rates["router"]) / 2
    delays, _ = alternate(contenders(delay), given.serve_rounds)
    return rates, delays


def _all_right(answers: list[Answer]) -> list[Answer]:
    wrong = [answer for answer in answers if answer.status != 200]
    if wrong:
        raise RuntimeError(f"{len(wrong)} of {len(answers)} requests failed: {wrong[0]}")
    return answers


def _weights(home: Home, url: str, count: int) -> float:
    """The percent of all requests by which a deployment's share is not its weight."""
    home.allranks("endpoint", "update", "e", "--traffic", "blue=90 green=10")
    answers = _all_right(saturated(url, CALLERS, count=count))
    shares = Counter(answer.header("azureml-model-deployment") for answer in answers)
    return abs(shares["green"] / len(answers) - 0.1) * 100


def _while_all_changes(home: Home, url: str, count: int) -> tuple[int, dict[str, int]]:
    """How many requests failed, and what was changed how often."""
    answers: list[Answer] = []
    load = threading.Thread(target=lambda: answers.extend(steady(url, RATE, count)))
    load.start()
    done = Counter[str]()
    for name, change in _changes(home):
        if not load.is_alive():
            break
        change()
        done[name] += 1
    load.join()
    failed = [answer for answer in answers if answer.status != 200]
    for answer in failed[:5]:
        print(f"failed: {answer}", flush=True)
    return len(failed), dict(done)


def _changes(home: Home) -> Iterator[tuple[str, Callable[[], object]]]:
    def traffic(text: str) -> Callable[[], object]:
        return lambda: home.allranks("endpoint", "update", "e", "--traffic", text)

    def instances(number: int) -> Callable[[], object]:
        words = ("deployment", "update", "blue", "-e", "e", "--instance-count", str(number), "-q")
        return lambda: home.allranks(*words)

    def server() -> None:
        pid = json.loads((home.folder / "server.json").read_text())["pid"]
        os.kill(pid, signal.SIGKILL)
        home.allranks("server", "start")

    version = 1
    while True:
        version += 1
        yield "switches", traffic("blue=0 green=100")
        yield "switches", traffic("blue=100 green=0")
        yield "rolling updates", lambda v=version: _deploy(home, "update", "blue", version=v)  # type: ignore[misc]
        yield "changes of instance_count", instances(2)
        yield "servers killed", server
        yield "changes of instance_count", instances(1)


def _killed(home: Home, url: str) -> list[str]:
    """What was wrong when one of two replicas was killed that had half of the requests each."""
    home.allranks("endpoint", "update", "e", "--traffic", "blue=100")
    _deploy(home, "update", "blue", version=0, count=2)
    pid = int(saturated(url, 1, count=1)[0].body.split()[0])

    async def ask() -> list[Answer]:
        client = Client(url, b"wait")
        several = [asyncio.create_task(client.ask(x_request_id=f"r{n}")) for n in range(8)]
        await asyncio.sleep(2)
        os.kill(pid, signal.SIGKILL)
        answers = await asyncio.gather(*several)
        client.close()
        return answers

    answers = asyncio.run(ask())
    wrong = []
    if Counter(answer.status for answer in answers) != {200: 4, 502: 4}:
        wrong.append(f"of 8 requests, 4 of a killed replica: {[a.status for a in answers]}")
    for number, answer in enumerate(answers):
        if answer.header("x-request-id") != f"r{number}":
            wrong.append(f"r{number} was answered {answer}")
        if answer.status == 200 and int(answer.body.split()[0]) == pid:
            wrong.append(f"r{number} was answered by the dead: {answer}")
    return wrong


def _model(home: Home, rounds: int) -> dict[str, list[float]]:
    """Seconds to the first answer of a warm model. One round before them is not counted."""
    from sklearn.linear_model import LinearRegression

    for slope in (2.0, 3.0):
        model = LinearRegression().fit([[0.0], [1.0]], [0.0, slope])
        (home.work / "model.pkl").write_bytes(pickle.dumps(model))
        home.allranks("model", "create", "birds", "--path", "model.pkl")
    (home.work / "sleeper.yml").write_text(SLEEPER)
    home.allranks("endpoint", "create", "sleeper", "--auth-mode", "none")
    home.allranks("deployment", "create", "-f", "sleeper.yml", "--all-traffic", "-q")
    warm = ("--warm", "sklearn", "--warm", "joblib")
    times: dict[str, list[float]] = {"model deploy": [], "rollback": [], "from zero": []}
    for number in range(rounds + 1):
        name = f"birds{number}"
        deploy = ("model", "deploy", "--name", name, "--auth-mode", "none", "-q", *warm)
        rollback = ("deployment", "update", "default", "-e", name, "--rollback", "-q")
        took = [_first(home, name, *deploy, "birds:1")]
        home.allranks(*deploy, "birds:2")
        took.append(_first(home, name, *rollback))
        while home.told("deployment", "show", "default", "-e", "sleeper", "--json")["replicas"]:
            time.sleep(0.1)
        took.append(_first(home, "sleeper"))
        home.allranks("endpoint", "delete", "--yes", name)
        for kind, seconds in zip(times, took, strict=True):
            times[kind] += [seconds] if number else []
    return times


def _first(home: Home, endpoint: str, *words: str) -> float:
    """Seconds of a command, if any, and an answer of version 1 after it."""
    began = time.perf_counter()
    if words:
        home.allranks(*words)
    where = json.loads((home.folder / "serve" / "address").read_text())
    url = f"http://{where['host']}:{where['port']}/endpoints/{endpoint}/score"
    (answer,) = _all_right(saturated(url, 1, count=1, body=b"[[3.0]]"))
    if answer.header("allranks-model") != "azureml:birds:1":
        raise RuntimeError(f"{endpoint} was answered by another version: {answer}")
    return time.perf_counter() - began
