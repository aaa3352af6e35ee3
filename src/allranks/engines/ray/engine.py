"""The Ray engine: a gang is a Ray job, whose driver holds one actor on each of N nodes.

All it asks is asked over HTTP, of the dashboard: nothing of Ray is imported here. Neither does it
keep anything, but for the mark of its home: that job's record is at Ray, under a name of ours.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import re
import secrets
import sys
import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from allranks.engines import agent_bundle
from allranks.engines.base import GangStatus, Handle, Host, Kind
from allranks.engines.options import Option, Type
from allranks.engines.ray import cluster
from allranks.engines.ray import driver as ray_driver
from allranks.engines.ray.dashboard_client import Answer, Dashboard
from allranks.errors import EngineError, Refused
from allranks.plan.plan import Gang
from allranks.settings import Home
from allranks.statuses import GangState, Reason

# The first Ray there was for Python 3.11, which agents need.
OLDEST = (2, 9)
DRIVER = "allranks_on_ray.py"
# How long `stop` looks on, so that most of what it is asked to end is gone when it returns.
LOOKS_ON = 2.0

OPTIONS = (
    Option("address", "Ray's dashboard", default="http://127.0.0.1:8265", connects=True),
    Option(
        "token_file",
        "file with the token, of a Ray that asks for one (RAY_AUTH_TOKEN_PATH)",
        Type.PATH,
        connects=True,
        variable="RAY_AUTH_TOKEN_PATH",
    ),
    Option("python", "the Python Ray's head runs on, should it not be found", connects=True),
    Option("resources", "further resources of each node, such as TPU=4", Type.LINES),
)

# A job's entrypoint is a shell's, whose `python` need not be Ray's: the raylet, which started the
# job's supervisor, has that on its command line.
_FIND_PYTHON = (
    "P=$(tr '\\0' ' ' </proc/$(sed -n 's/^PPid:[[:space:]]*//p' /proc/$PPID/status)/cmdline"
    " | sed -n 's/.*--python_worker_command=\\([^ ]*\\) .*/\\1/p'); "
    f'exec "${{P:-python}}" {DRIVER}'
)
_ENDED = {"SUCCEEDED": "its agents have ended", "STOPPED": "it was stopped"}


class RayEngine:
    """Agents in actors of Ray's. ``folder`` is the engine's own, ``nodes`` where agents work: on a
    disk that Ray's nodes share with the server."""

    name = "ray"
    pace = 1.0

    def __init__(self, folder: Path, nodes: Path, options: Mapping[str, Any]) -> None:
        self._folder, self._nodes = folder, nodes
        self._python = str(options.get("python") or "")
        self._dashboard = dashboard(options)

    def admit(self, gang: Gang) -> None:
        each = bundle(gang)
        try:
            short = cluster.lack(self._dashboard, gang.nodes, each)
        except Refused:
            raise
        except EngineError:
            return  # it does not answer now: once it does, the job will be there
        if short:
            raise Refused(
                f"the job can never run on this cluster: {short}",
                where="resources",
                hint="ask for fewer nodes, or less of each: `cpus` is as many as a node has "
                "processes unless it is given",
            )

    def render(self, gang: Gang) -> str:
        mark = self._mark if self._mark_file.exists() else "…"  # to be read, it touches nothing
        body = self._body(gang, dict.fromkeys(gang.env, "…"), mark)
        return json.dumps(body, indent=2, ensure_ascii=False)

    def submit(self, gang: Gang) -> Handle:
        try:
            self.admit(gang)
            self._send_package()
            body = json.dumps(self._body(gang, gang.env, self._mark)).encode()
            answer = self._dashboard.ask("POST", "/api/jobs/", body)
        except Refused as error:
            if error.where == "resources":
                raise
            # A token that is changed, a proxy that steps in: no fault of this job's.
            raise EngineError(error.message, where=error.where, hint=error.hint) from error
        if not answer.ok and "already exists" not in answer.text:
            raise EngineError(f"Ray did not take the job: {answer.last_line()}")
        return Handle(gang.key, self.id(gang.key))

    def poll(self, handles: Sequence[Handle]) -> Mapping[str, GangStatus]:
        if not handles:
            return {}
        try:
            jobs = {job["submission_id"]: job for job in self._dashboard.json("/api/jobs/")}
            asked = {each.key: jobs.get(self.id(each.key)) for each in handles}
            running = [job for job in asked.values() if job and job["status"] == "RUNNING"]
            placed = cluster.placed(self._dashboard, running) if running else {}
        except EngineError as error:
            return {each.key: GangStatus(GangState.UNKNOWN, error.message) for each in handles}
        return {key: _seen(job, placed) for key, job in asked.items()}

    def stop(self, handle: Handle) -> None:
        """Have Ray stop the job, and once it has ended, forget it: its record holds secrets."""
        path = f"/api/jobs/{quote(self.id(handle.key))}"
        until = time.monotonic() + LOOKS_ON
        asked = False
        while (status := self._status(path)) is not None:
            if status not in ("PENDING", "RUNNING"):
                self._must("forget the job", "DELETE", path)
                return
            asked = asked or self._ask_to_stop(path)
            if time.monotonic() > until:
                if not asked:
                    raise EngineError("Ray did not stop the job: there is nobody yet to be told")
                return  # it ends: its agents have their grace
            time.sleep(0.05)

    def check(self, options: Mapping[str, Any]) -> None:
        found = dashboard(options)
        told = found.json("/api/version")
        version = str(told.get("ray_version", "")) if isinstance(told, dict) else ""
        if not re.match(r"\d+\.\d+", version):
            raise Refused(
                f"what answers at {found.url} is not Ray's dashboard",
                hint="give the address of the dashboard, http://HOST:8265 as a rule",
            )
        if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
            raise Refused(
                f"Ray {version} is too old",
                where=found.url,
                hint=f"Ray {'.'.join(map(str, OLDEST))} is the first for Python 3.11, which agents "
                "need",
            )

    def hosts(self, options: Mapping[str, Any]) -> Sequence[Host]:
        return cluster.hosts(dashboard(options))

    def id(self, key: str) -> str:
        return _id(self._mark, key)

    def mark(self, key: str) -> str:
        """What a gang's processes carry."""
        return f"{self._mark}.{key}"

    @functools.cached_property
    def _mark(self) -> str:
        """The home's own, made when first needed and kept: a path would not do, for two machines
        may each have a home of the same path, and a machine two names."""
        if not self._mark_file.exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            beside = self._mark_file.with_suffix(".new")
            beside.write_text(secrets.token_hex(6))
            beside.replace(self._mark_file)
        return self._mark_file.read_text()

    @property
    def _mark_file(self) -> Path:
        return self._folder / "mark"

    def _body(self, gang: Gang, env: Mapping[str, str], mark: str) -> dict[str, Any]:
        """What is posted. ``env`` is the gang's, or what is shown of it."""
        first, *words = gang.argv
        each = bundle(gang)
        told = {
            "name": _id(mark, gang.key),
            "mark": f"{mark}.{gang.key}",
            "nodes": gang.nodes,
            "each": each,
            "argv": ["python" if first == sys.executable else first, *words],
            "folder": str(self._nodes / gang.key),
        }
        return {
            "submission_id": _id(mark, gang.key),
            "entrypoint": f"exec {self._python} {DRIVER}" if self._python else _FIND_PYTHON,
            # Nothing of its own: a driver with none runs on the head.
            "entrypoint_num_cpus": 0,
            "metadata": {
                "allranks": json.dumps({"key": gang.key, "nodes": gang.nodes, "each": each})
            },
            "runtime_env": {
                "working_dir": f"gcs://{package()[0]}",
                "env_vars": {
                    ray_driver.GANG: _verbatim(told),
                    ray_driver.SECRETS: _verbatim(env),
                    "RAY_JOB_STOP_WAIT_TIME_S": str(ray_driver.PATIENCE),
                },
            },
        }

    def _send_package(self) -> None:
        name, content = package()
        path = f"/api/packages/gcs/{name}"
        # Asking for it has Ray keep it for ten minutes, should its last job end meanwhile.
        if self._dashboard.ask("GET", path).status == 404:
            self._must("take the agent's code", "PUT", path, content)

    def _status(self, path: str) -> str | None:
        answer = self._must("tell of the job", "GET", path)
        return str(json.loads(answer.text)["status"]) if answer.ok else None

    def _ask_to_stop(self, path: str) -> bool:
        """Whether it was told: it may this moment have ended, or not have begun to listen."""
        return '"stopped": true' in self._must("stop the job", "POST", f"{path}/stop").text

    def _must(self, what: str, method: str, path: str, body: bytes | None = None) -> Answer:
        answer = self._dashboard.ask(method, path, body)
        if not answer.ok and answer.status != 404:
            raise EngineError(f"Ray did not {what}: {answer.last_line()}")
        return answer


def bundle(gang: Gang) -> dict[str, float]:
    """What each node is to have, in Ray's words. CPUs are what Ray counts nodes full by: a gang
    that names none takes one for each of its processes."""
    each: dict[str, float] = {"CPU": gang.cpus or max(1, gang.processes)}
    if gang.gpus:
        each["GPU"] = gang.gpus
    if gang.memory:
        each["memory"] = gang.memory
    for line in gang.options.get("resources") or ():
        name, _, amount = line.rpartition("=")
        if not name or not re.fullmatch(r"\d+(\.\d+)?", amount) or not float(amount):
            raise Refused(
                f"{line!r} is not a resource and how much of it",
                where="resources",
                hint="such as TPU=4 or accelerator_type:A100=0.1",
            )
        each[name] = float(amount)
    return each


@functools.cache
def package() -> tuple[str, bytes]:
    """What Ray needs of us, as a zip: its name, which is of its content, and its bytes."""
    driver = Path(ray_driver.__file__).read_bytes()
    content = _zipped({DRIVER: driver, ray_driver.CODE: _zipped(dict(agent_bundle.files()))})
    return f"allranks-{hashlib.sha256(content).hexdigest()[:24]}.zip", content


def _zipped(files: Mapping[str, bytes]) -> bytes:
    """The same bytes for the same files."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def dashboard(options: Mapping[str, Any]) -> Dashboard:
    address = options.get("address") or OPTIONS[0].default
    return Dashboard(str(address), str(options.get("token_file") or ""))


def _id(mark: str, key: str) -> str:
    """What the gang is to Ray, where other homes may have a job of the same name. It stands in
    paths and file names: what may not be there gives way to a digest."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", key)[:80]
    if plain != key:
        plain = f"{plain}-{hashlib.sha256(key.encode()).hexdigest()[:8]}"
    return f"allranks-{mark}-{plain}"


def _seen(job: Mapping[str, Any] | None, placed: Mapping[str, GangStatus]) -> GangStatus:
    if job is None:
        return GangStatus(GangState.GONE, "Ray does not know it")
    status, message = job["status"], job.get("message") or ""
    if status == "PENDING":
        return GangStatus(GangState.QUEUED, message)
    if status == "RUNNING":
        return placed[job["submission_id"]]
    never = job.get("driver_exit_code") == ray_driver.NEVER
    return GangStatus(
        GangState.GONE,
        _ENDED.get(status) or cause(message),
        reason=Reason.GANG_REFUSED if never else None,
    )


def cause(message: str) -> str:
    """The driver's first sentence, or Ray's last."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    ours = [line.removeprefix("allranks: ") for line in lines if line.startswith("allranks: ")]
    return (ours[:1] or lines[-1:] or ["Ray says no more than that it failed"])[0][:500]


def _verbatim(data: Any) -> str:
    """JSON as a variable's value: Ray fills in what it takes for ``${names}``."""
    return json.dumps(data, ensure_ascii=False).replace("$", "\\u0024")


def _make(home: Home, options: Mapping[str, Any]) -> RayEngine:
    return RayEngine(home.engines / RayEngine.name, home.nodes, options)


KIND = Kind(RayEngine.name, "a Ray cluster; each node is an actor of a Ray job", OPTIONS, _make)
