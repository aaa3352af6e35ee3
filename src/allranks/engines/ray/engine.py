"""The Ray engine: a gang is a Ray job whose driver holds one actor on each of N nodes.

It talks to Ray's dashboard over HTTP and does not import Ray. Its only stored state is the mark of
its home: the job's record is at Ray, under a name derived from the gang's key.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import re
import sys
import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from allranks.core.plan import Gang
from allranks.engines import agent_bundle
from allranks.engines.answers import reads_answers
from allranks.engines.base import GangStatus, Handle, Host, Kind
from allranks.engines.home_mark import HomeMark, seen_from
from allranks.engines.options import SHARED_HOME, Option, Type
from allranks.engines.ray import cluster
from allranks.engines.ray import driver as ray_driver
from allranks.engines.ray.dashboard_client import Answer, Dashboard
from allranks.errors import EngineError, Refused
from allranks.settings import Home
from allranks.statuses import GangState, Reason, SharedHome

# The first Ray for Python 3.11, which agents need.
OLDEST = (2, 9)
DRIVER = "allranks_on_ray.py"
# Seconds that `stop` waits, so that most jobs have ended when it returns.
STOP_WAIT = 2.0

OPTIONS = (
    Option("address", "Ray's dashboard", default="http://127.0.0.1:8265", connects=True),
    Option(
        "token_file",
        "file with Ray's token, if Ray requires one (RAY_AUTH_TOKEN_PATH)",
        Type.PATH,
        connects=True,
        variable="RAY_AUTH_TOKEN_PATH",
    ),
    Option("python", "Python that Ray's head runs on (found automatically)", connects=True),
    Option("resources", "additional resources of each node, such as TPU=4", Type.LINES),
    SHARED_HOME,
)

# A job's entrypoint runs in a shell, whose `python` may not be Ray's. The raylet, which started the
# job's supervisor, has Ray's Python on its command line.
_FIND_PYTHON = (
    "P=$(tr '\\0' ' ' </proc/$(sed -n 's/^PPid:[[:space:]]*//p' /proc/$PPID/status)/cmdline"
    " | sed -n 's/.*--python_worker_command=\\([^ ]*\\) .*/\\1/p'); "
    f'exec "${{P:-python}}" {DRIVER}'
)
_ENDED = {"SUCCEEDED": "its agents have ended", "STOPPED": "it was stopped"}


@reads_answers
class RayEngine:
    """Agents in Ray actors. ``folder`` is the engine's own; ``nodes`` is the agents' folder, on a
    disk that Ray's nodes share with the server."""

    name = "ray"
    pace = 1.0

    def __init__(self, folder: Path, nodes: Path, options: Mapping[str, Any]) -> None:
        self._folder, self._nodes = folder, nodes
        self._python = str(options.get("python") or "")
        self._dashboard = dashboard(options)

    def admit(self, gang: Gang) -> None:
        resources = bundle(gang)
        try:
            shortage = cluster.shortage(self._dashboard, gang.nodes, resources)
        except Refused:
            raise
        except EngineError:
            return  # Ray does not answer now: the job waits in the queue
        if shortage:
            raise Refused(
                f"the job can never run on this cluster: {shortage}",
                where="resources",
                hint="request fewer nodes, or less per node; `cpus` defaults to the number of "
                "processes per node",
            )

    def render(self, gang: Gang) -> str:
        mark = HomeMark(self._folder).shown()
        body = self._body(gang, dict.fromkeys(gang.env, "…"), mark)
        return json.dumps(body, indent=2, ensure_ascii=False)

    def submit(self, gang: Gang) -> Handle:
        try:
            self.admit(gang)
            self._send_package()
            env = dict(gang.env)
            if _shared_home(gang.options) is SharedHome.AUTO:
                env["ALLRANKS_AGENT_HOME"] = seen_from(self._nodes / gang.key)
            body = json.dumps(self._body(gang, env, self._mark)).encode()
            answer = self._dashboard.request("POST", "/api/jobs/", body)
        except Refused as error:
            if error.where == "resources":
                raise
            # A changed token or a proxy in between is not this job's fault: it is retried.
            raise EngineError(error.message, where=error.where, hint=error.hint) from error
        if not answer.ok and "already exists" not in answer.text:
            raise EngineError(f"Ray did not accept the job: {answer.last_line()}")
        return Handle(gang.key, self.id(gang.key))

    def poll(self, handles: Sequence[Handle]) -> Mapping[str, GangStatus]:
        if not handles:
            return {}
        try:
            jobs = {job["submission_id"]: job for job in self._dashboard.json("/api/jobs/")}
            ours = {handle.key: jobs.get(self.id(handle.key)) for handle in handles}
            running = [job for job in ours.values() if job and job["status"] == "RUNNING"]
            placed = cluster.placed(self._dashboard, running) if running else {}
        except EngineError as error:
            return {handle.key: GangStatus(GangState.UNKNOWN, error.message) for handle in handles}
        return {key: _status(job, placed) for key, job in ours.items()}

    def stop(self, handle: Handle) -> None:
        """Stop the job, then delete its record at Ray, because it holds secrets."""
        path = f"/api/jobs/{quote(self.id(handle.key))}"
        until = time.monotonic() + STOP_WAIT
        stopping = False
        while (status := self._job_status(path)) is not None:
            if status not in ("PENDING", "RUNNING"):
                self._must("delete the job", "DELETE", path)
                return
            stopping = stopping or self._request_stop(path)
            if time.monotonic() > until:
                if not stopping:
                    raise EngineError("Ray did not stop the job: its driver has not started yet")
                return  # its agents still have their grace
            time.sleep(0.05)

    def check(self, options: Mapping[str, Any]) -> str | None:
        client = dashboard(options)
        data = client.json("/api/version")
        version = str(data.get("ray_version", "")) if isinstance(data, dict) else ""
        if not re.match(r"\d+\.\d+", version):
            raise client.not_ray()
        if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
            oldest = ".".join(map(str, OLDEST))
            hint = f"install Ray {oldest} or newer: agents need Python 3.11"
            raise Refused(f"Ray {version} is too old", where=client.url, hint=hint)
        if any(host.ready for host in cluster.hosts(client)):
            return None
        return f"Ray's head at {client.url} lists no live node: jobs will wait until one joins it"

    def hosts(self, options: Mapping[str, Any]) -> Sequence[Host]:
        return cluster.hosts(dashboard(options))

    def id(self, key: str) -> str:
        return _id(self._mark, key)

    def mark(self, key: str) -> str:
        """Return the marker that a gang's processes carry."""
        return f"{self._mark}.{key}"

    @functools.cached_property
    def _mark(self) -> str:
        return HomeMark(self._folder).get()

    def _body(self, gang: Gang, env: Mapping[str, str], mark: str) -> dict[str, Any]:
        """The body of the request. ``env`` is the gang's, or placeholders for display."""
        first, *arguments = gang.argv
        resources = bundle(gang)
        driver_gang = {
            "name": _id(mark, gang.key),
            "mark": f"{mark}.{gang.key}",
            "nodes": gang.nodes,
            "each": resources,
            "argv": ["python" if first == sys.executable else first, *arguments],
            "folder": str(self._nodes / gang.key),
            "shared_home": str(_shared_home(gang.options)),
            "cache": gang.options.get("cache") or "",
        }
        return {
            "submission_id": _id(mark, gang.key),
            "entrypoint": f"exec {self._python} {DRIVER}" if self._python else _FIND_PYTHON,
            # A driver that requests no resources runs on the head.
            "entrypoint_num_cpus": 0,
            "metadata": {
                "allranks": json.dumps({"key": gang.key, "nodes": gang.nodes, "each": resources})
            },
            "runtime_env": {
                "working_dir": f"gcs://{package()[0]}",
                "env_vars": {
                    ray_driver.GANG: _verbatim(driver_gang),
                    ray_driver.SECRETS: _verbatim(env),
                    "RAY_JOB_STOP_WAIT_TIME_S": str(ray_driver.PATIENCE),
                },
            },
        }

    def _send_package(self) -> None:
        name, content = package()
        path = f"/api/packages/gcs/{name}"
        # After a GET Ray keeps the package for ten minutes, even if its last job ends meanwhile.
        if self._dashboard.request("GET", path).status == 404:
            self._must("accept the agent's code", "PUT", path, content)

    def _job_status(self, path: str) -> str | None:
        answer = self._must("report the job's status", "GET", path)
        return str(json.loads(answer.text)["status"]) if answer.ok else None

    def _request_stop(self, path: str) -> bool:
        """Return whether Ray stops it: it may just have ended, or not listen yet."""
        return '"stopped": true' in self._must("stop the job", "POST", f"{path}/stop").text

    def _must(self, action: str, method: str, path: str, body: bytes | None = None) -> Answer:
        answer = self._dashboard.request(method, path, body)
        if not answer.ok and answer.status != 404:
            raise EngineError(f"Ray did not {action}: {answer.last_line()}")
        return answer


def bundle(gang: Gang) -> dict[str, float]:
    """Return the resources of each node under Ray's names. Without CPUs Ray would never consider a
    node full: a gang that requests none gets one per process. Raises Refused."""
    resources: dict[str, float] = {"CPU": gang.cpus or max(1, gang.processes)}
    if gang.gpus:
        resources["GPU"] = gang.gpus
    if gang.memory:
        resources["memory"] = gang.memory
    for line in gang.options.get("resources") or ():
        name, _, amount = line.rpartition("=")
        if not name or not re.fullmatch(r"\d+(\.\d+)?", amount) or not float(amount):
            raise Refused(
                f"{line!r} is not a resource with its amount",
                where="resources",
                hint="write NAME=AMOUNT, such as TPU=4 or accelerator_type:A100=0.1",
            )
        resources[name] = float(amount)
    return resources


@functools.cache
def package() -> tuple[str, bytes]:
    """Return the zip that Ray's job works in: its name, derived from its content, and its bytes."""
    driver = Path(ray_driver.__file__).read_bytes()
    content = _zipped({DRIVER: driver, ray_driver.CODE: agent_bundle.zipped()})
    return f"allranks-{hashlib.sha256(content).hexdigest()[:24]}.zip", content


def _zipped(files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def dashboard(options: Mapping[str, Any]) -> Dashboard:
    address = options.get("address") or OPTIONS[0].default
    return Dashboard(str(address), str(options.get("token_file") or ""))


def _id(mark: str, key: str) -> str:
    """The gang's job id at Ray, unique even if another home uses the same key. It appears in paths,
    so a digest replaces characters that paths cannot have."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", key)[:80]
    if plain != key:
        plain = f"{plain}-{hashlib.sha256(key.encode()).hexdigest()[:8]}"
    return f"allranks-{mark}-{plain}"


def _status(job: Mapping[str, Any] | None, placed: Mapping[str, GangStatus]) -> GangStatus:
    if job is None:
        return GangStatus(GangState.GONE, "Ray has no such job")
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
    """Return the driver's first message, or else Ray's last line."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    ours = [line.removeprefix("allranks: ") for line in lines if line.startswith("allranks: ")]
    return (ours[:1] or lines[-1:] or ["the job failed, and Ray gives no reason"])[0][:500]


def _verbatim(data: Any) -> str:
    """JSON for a variable's value without `$`, because Ray expands ``${names}``."""
    return json.dumps(data, ensure_ascii=False).replace("$", "\\u0024")


def _shared_home(options: Mapping[str, Any]) -> SharedHome:
    return SharedHome(options.get("shared_home") or SharedHome.AUTO)


def _make(home: Home, options: Mapping[str, Any]) -> RayEngine:
    return RayEngine(home.engines / RayEngine.name, home.nodes, options)


KIND = Kind(
    RayEngine.name,
    "a Ray cluster; each node is an actor of a Ray job",
    OPTIONS,
    _make,
    shared_home=_shared_home,
)
