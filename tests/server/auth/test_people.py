"""Users, their tokens and what they may: over HTTP against the real application."""

import contextlib
import json
import logging
import re
import select
import socket
import sqlite3
import stat
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from allranks.api.routes import ROUTES, Role
from allranks.errors import Conflict, NotFound, UsageError
from allranks.http_limits import connection_limit
from allranks.server import authentication
from allranks.server.api.routes import job_stream
from allranks.server.api.routes.mlflow import Proxy
from allranks.server.auth import tokens
from allranks.server.auth.tokens import Tokens
from allranks.server.authentication import Gate
from allranks.store.database import open_database
from allranks.store.key_values import Settings
from tests.server.serving import JOB, Served, held_to, served
from tests.support import until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("people") / "h") as found:
        yield found


def made(server: Served, name: str, role: str, **more: Any) -> dict[str, str]:
    asked = {"name": name, "role": role, **more}
    told = server.people.post("/api/v1/tokens", json=asked)
    assert told.status_code == 201, told.text
    return server.as_(told.json()["token"])


@pytest.mark.parametrize("role", [*Role], ids=str)
@pytest.mark.medium
def test_each_role_opens_what_the_table_says_and_nothing_else(server: Served, role: Role) -> None:
    shown = made(server, f"one-{role}", str(role))
    for row in ROUTES:
        if row.path in ("/api/v1/server/stop", "/api/v1/gc") and role >= row.role:
            continue  # it would
        address = re.sub(r"\{[^}]*\}", "none-such", row.path)
        told = server.people.request(row.method, address, headers=shown, content=b"null")
        held_to(told)
        assert (told.status_code == 403) == (role < row.role), (row, told.text)
        assert told.status_code != 401


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer x", "Basic eDp5", "Bearer \xe9\xff", "\xb2:j:0"]
)
def test_strangers_see_nothing(server: Served, header: str) -> None:
    for path in ("/api/v1/jobs", "/openapi.json", "/docs", "/none", "/api/v1/none", "/mlflow/"):
        told = server.people.get(path, headers={"authorization": header.encode("latin-1")})
        assert told.status_code == 401, path


def test_members_end_and_repeat_their_own_jobs_only(server: Served) -> None:
    ann, ben = made(server, "ann", "member"), made(server, "ben", "member")
    spec = JOB["spec"] | {"name": "anns", "properties": {"allranks.created_by": "ben", "a": "b"}}  # type: ignore[operator]
    told = server.people.post("/api/v1/jobs", json=JOB | {"spec": spec}, headers=ann)
    assert (told.status_code, told.json()["created_by"]) == (201, "ann")
    assert server.people.get("/api/v1/jobs/anns", headers=ben).status_code == 200
    for what in ("cancel", "restart"):
        told = server.people.post(f"/api/v1/jobs/anns/{what}", headers=ben)
        assert told.status_code == 403
        assert "submitted by ann" in told.json()["message"]
    assert server.people.post("/api/v1/jobs/anns/cancel", headers=ann).status_code == 200
    server.submit("owners")
    assert server.people.post("/api/v1/jobs/owners/cancel", headers=ann).status_code == 403
    assert server.people.get("/api/v1/jobs/owners").json()["created_by"] == "owner"
    by = {job["name"]: job["created_by"] for job in server.people.get("/api/v1/jobs").json()}
    assert (by["anns"], by["owners"]) == ("ann", "owner")
    server.people.post("/api/v1/jobs/anns/wait?timeout=5")
    again = server.people.post("/api/v1/jobs/anns/restart")  # an admin's, from here on
    assert again.status_code in (201, 409)


@pytest.mark.medium  # the router starts
def test_members_get_the_keys_of_their_own_endpoints_only(server: Served) -> None:
    ann, ben = made(server, "ann-e", "member"), made(server, "ben-e", "member")
    told = server.people.post("/api/v1/endpoints", json={"name": "anns-e"}, headers=ann)
    assert told.status_code == 201, told.text
    keys, key = "/api/v1/endpoints/anns-e/keys", {"key": "primary"}
    for refused in (
        server.people.get(keys, headers=ben),
        server.people.post(keys, json=key, headers=ben),
        server.people.delete("/api/v1/endpoints/anns-e", headers=ben),
    ):
        assert (refused.status_code, "ask ann-e" in refused.json()["hint"]) == (403, True)
    assert server.people.get("/api/v1/endpoints/anns-e", headers=ben).status_code == 200
    own = server.people.get(keys, headers=ann).json()
    assert own == server.people.get(keys).json()  # an admin's
    assert server.people.post(keys, json=key, headers=ann).json()["primary"] != own["primary"]
    assert server.people.delete("/api/v1/endpoints/anns-e", headers=ann).status_code == 200


def test_a_restart_of_a_job_that_ends_says_wait(server: Served) -> None:
    server.submit("ends")
    told = server.people.post("/api/v1/jobs/ends/restart").json()
    assert "allranks job cancel ends" in told["hint"]
    row = server.people.post("/api/v1/jobs/ends/cancel").json()
    told = server.people.post("/api/v1/jobs/ends/restart").json()
    # Between the two the job may have ended; then there is nothing to hint at.
    assert row["ended_at"] or "allranks job wait ends" in told.get("hint", "allranks job wait ends")


def test_nobody_makes_themselves_more(server: Served) -> None:
    shown = made(server, "cat", "member")
    asked = {"name": "cat2", "role": "admin"}
    assert server.people.post("/api/v1/tokens", json=asked, headers=shown).status_code == 403
    assert server.people.get("/api/v1/server", headers=shown).json()["role"] == "member"


def test_a_revoked_token_opens_nothing(server: Served) -> None:
    shown = made(server, "dan", "admin")
    assert server.people.get("/api/v1/jobs", headers=shown).status_code == 200
    assert server.people.delete("/api/v1/tokens/dan").status_code == 204
    assert server.people.get("/api/v1/jobs", headers=shown).status_code == 401
    assert made(server, "dan", "reader") != shown


@pytest.mark.medium
def test_an_open_answer_is_cut_when_its_token_is_revoked(
    server: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(authentication, "_CHECK", 0.01)
    monkeypatch.setattr(job_stream, "BEAT", 0.01)
    server.submit("followed")
    shown = made(server, "fay", "reader")
    path = "/api/v1/jobs/followed/stream"
    with server.people.stream("POST", path, json={}, headers=shown) as answer:
        lines = answer.iter_raw()
        next(lines)
        assert server.people.delete("/api/v1/tokens/fay").status_code == 204
        with pytest.raises(httpx.RemoteProtocolError):  # it does not look complete
            deque(lines, maxlen=0)
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert server.people.get("/api/v1/jobs/followed").json()["ended_at"] is None


@pytest.mark.medium
def test_an_answer_that_was_waited_for_is_none_once_its_token_is_revoked(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authentication, "_CHECK", 0.01)
    server.submit("waited-for")
    headers = made(server, "gil", "reader")
    path = f"{server.url}/api/v1/jobs/waited-for/wait?timeout=1"
    began, while_valid = threading.Event(), Gate._while_valid
    monkeypatch.setattr(Gate, "_while_valid", lambda *args: began.set() or while_valid(*args))
    with ThreadPoolExecutor(1) as waiting:
        answer = waiting.submit(httpx.get, path, headers=headers)
        assert began.wait(20)
        server.people.delete("/api/v1/tokens/gil")
        with pytest.raises(httpx.TransportError):
            answer.result()


@pytest.mark.medium
@pytest.mark.parametrize("path", ["blobs/{}", "blobs/{}/part?offset=0&size=9999999", "uploads"])
def test_an_upload_is_cut_when_its_token_is_revoked(
    server: Served, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(authentication, "_CHECK", 0.01)
    headers = made(server, "hal", "member")
    address = ("127.0.0.1", httpx.URL(server.url).port)
    method = "POST" if path == "uploads" else "PUT"
    head = f"{method} /api/v1/{path.format('0' * 64)} HTTP/1.1\r\nhost: localhost\r\n"
    head += f"authorization: {headers['authorization']}\r\ncontent-length: 9999999\r\n\r\n"
    with socket.create_connection(address, 20) as line:
        line.sendall(head.encode() + b"x" * 100_000)
        server.people.delete("/api/v1/tokens/hal")
        with contextlib.suppress(ConnectionError):
            assert line.recv(1) == b""


@pytest.mark.parametrize("scheme", ["Bearer", "Basic"])
def test_mlflows_answers_are_cut_when_the_token_is_revoked(
    server: Served, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    async def endless(self: Proxy, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while (await receive())["type"] != "http.disconnect":
            await send({"type": "http.response.body", "body": b"x", "more_body": True})

    monkeypatch.setattr(authentication, "_CHECK", 0.01)
    monkeypatch.setattr(Proxy, "_serve", endless)
    token = made(server, "ida", "reader")["authorization"].split()[1]
    auth = httpx.BasicAuth("ida", token) if scheme == "Basic" else None
    headers = server.as_(token) if auth is None else {}
    with server.people.stream("GET", "/mlflow/", headers=headers, auth=auth) as answer:
        lines = answer.iter_raw()
        next(lines)
        assert server.people.delete("/api/v1/tokens/ida").status_code == 204
        with pytest.raises(httpx.RemoteProtocolError):
            deque(lines, maxlen=0)
    rank = server.as_(server.auth.rank_token("j", 1))
    with server.people.stream("GET", "/mlflow/", headers=rank) as answer:
        next(answer.iter_raw())


def test_one_person_does_not_fill_an_address(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_limit, "PER_ADDRESS", 8)
    greedy, other = made(server, "greedy", "member"), made(server, "other", "member")
    address = ("127.0.0.1", httpx.URL(server.url).port)
    head = "POST /api/v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n"
    head += f"authorization: {greedy['authorization']}\r\n\r\n"
    with contextlib.ExitStack() as stack:
        lines = [stack.enter_context(socket.create_connection(address, 20)) for _ in range(5)]
        for line in lines:
            line.sendall(head.encode())
        (refused,), _, _ = select.select(lines, [], [], 20)  # the others wait for their bodies
        assert b" 429 " in refused.recv(1 << 16)
        assert "4 requests that run" in listed(server, greedy).json()["message"]
        assert listed(server, other).status_code == 200
    until(lambda: listed(server, greedy).status_code == 200)


def listed(server: Served, shown: dict[str, str]) -> httpx.Response:
    return server.people.get("/api/v1/jobs", headers=shown)


def test_a_token_is_told_once_and_kept_as_its_hash(server: Served) -> None:
    secret = made(server, "eve", "reader")["authorization"].split()[1]
    assert len(secret) > 43
    listed = server.people.get("/api/v1/tokens")
    assert {"name": "eve", "role": "reader"}.items() <= listed.json()[-1].items() or listed
    assert secret not in listed.text
    everything = b"".join(each.read_bytes() for each in files(server.home.root))
    assert secret.encode() not in everything


def files(root: Path) -> list[Path]:
    return [each for each in root.rglob("*") if stat.S_ISREG(each.lstat().st_mode)]


class TestTokens:
    """Without a server, and with a clock."""

    @pytest.fixture
    def kept(self, tmp_path: Path) -> Iterator[Settings]:
        database = open_database(tmp_path / "db")
        yield Settings(database)
        database.dispose()

    def test_they_outlive_a_server_and_expire(
        self, kept: Settings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        token = Tokens(kept).create("ann", Role.MEMBER, days=2)
        again = Tokens(kept)
        assert again.find(token)[:2] == ("ann", Role.MEMBER)
        until(lambda: Tokens(kept).list()[0].used_at is not None)
        (told,) = Tokens(kept).list()
        assert told.expires_at == pytest.approx(told.created_at + 2 * 86400)
        monkeypatch.setattr(tokens.time, "time", lambda: told.created_at + 2 * 86400 + 1)
        assert again.find(token) is None

    def test_a_record_that_is_busy_holds_nobody_up(self, tmp_path: Path, kept: Settings) -> None:
        token = Tokens(kept).create("ann", Role.MEMBER)
        with contextlib.closing(sqlite3.connect(tmp_path / "db", isolation_level=None)) as writer:
            writer.execute("begin immediate")
            assert Tokens(kept).find(token)[:2] == ("ann", Role.MEMBER)
            assert Tokens(kept).list()[0].used_at is None
            writer.execute("rollback")
        until(lambda: Tokens(kept).list()[0].used_at is not None)

    def test_a_record_that_cannot_be_written_is_no_refusal(
        self, kept: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        token = Tokens(kept).create("ann", Role.MEMBER)
        known = Tokens(kept)

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(kept, "change", full)
        assert known.find(token)[:2] == ("ann", Role.MEMBER)
        until(lambda: "No space left" in caplog.text)

    @pytest.mark.parametrize("shown", ["", "x", "allranks_", "allranks_é\ud800", "a" * 100_000])
    def test_others_are_nobodys(self, kept: Settings, shown: str) -> None:
        known = Tokens(kept)
        known.create("ann", Role.ADMIN)
        assert known.find(shown) is None
        assert known.find(known._kept["ann"]["hash"]) is None

    def test_names(self, kept: Settings) -> None:
        known = Tokens(kept)
        known.create("a.b@c", Role.READER)
        for name in ("", "a b", "../x", "a" * 64, "\n", "-x"):
            with pytest.raises(UsageError):
                known.create(name, Role.READER)
        for name in ("a.b@c", "owner"):
            with pytest.raises(Conflict):
                known.create(name, Role.READER)
        with pytest.raises(NotFound):
            known.revoke("none")


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "[::1", "", "a\x00b"])
def test_names_that_strangers_gave_this_machine(server: Served, host: str) -> None:
    for path in ("/api/v1/jobs", "/agent/v1/0/orders", "/mlflow/"):
        assert raw(server, f"GET {path} HTTP/1.1\r\nHost: {host}\r\n").startswith(
            ("HTTP/1.1 403", "HTTP/1.1 400")
        )


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "x"])
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
def test_pages_of_others(server: Served, origin: str, method: str) -> None:
    told = server.people.request(method, "/api/v1/jobs", headers={"origin": origin})
    assert told.status_code == 403
    assert not [name for name in told.headers if name.startswith("access-control")]


def test_by_which_names_it_goes(server: Served) -> None:
    port = server.url.rpartition(":")[2]
    for name in ("127.0.0.1", "localhost", "[::1]", socket.gethostname(), "10.1.2.3"):
        shown = {"host": f"{name}:{port}", "origin": f"http://{name}:{port}"}
        assert server.people.get("/api/v1/jobs", headers=shown).status_code == 200, name


def test_what_a_job_wrote_is_no_page_of_ours(server: Served) -> None:
    server.submit("page")
    folder = server.home.jobs / "page" / "artifacts" / "outputs"
    folder.mkdir(parents=True)
    (folder / "x.html").write_text("<script>alert(1)</script>")
    told = server.people.get("/api/v1/jobs/page/files/artifacts/outputs/x.html")
    assert told.status_code == 200
    assert "sandbox" in told.headers["content-security-policy"]
    assert told.headers["x-content-type-options"] == "nosniff"


def test_links_in_artifacts_lead_nowhere(server: Served, tmp_path: Path) -> None:
    server.submit("links")
    server.submit("other")
    (tmp_path / "secret").write_text("s3cr3t")
    folder = server.home.jobs / "links" / "artifacts" / "outputs"
    folder.mkdir(parents=True)
    targets = {"a": tmp_path / "secret", "d": tmp_path, "t": server.home.token, "r": folder / "r"}
    for name, target in targets.items():
        (folder / name).symlink_to(target)
    place = "artifacts/outputs"
    asked = [f"{place}/{name}" for name in ("a", "d/secret", "t", "r", "../../../../token")]
    for path in [*asked, "../other", str(server.home.token)]:
        told = server.people.get(f"/api/v1/jobs/links/files/{path.replace('..', '%2e%2e')}")
        assert told.status_code == 404, path
        held_to(told)
        told = server.people.get(f"/api/v1/jobs/links/checksums/{path}?size=9")
        assert told.status_code == 404, path
    bundle = [{"path": path, "size": 9} for path in asked]
    told = server.people.post("/api/v1/jobs/links/bundle", json=bundle)
    assert [json.loads(line) for line in told.text.splitlines()] == [{"size": None}] * len(asked)
    assert server.people.get("/api/v1/jobs/links/files").json() == []
    named = server.people.get("/api/v1/jobs/links/links").json()
    assert named == [f"{place}/{name}" for name in sorted(targets)]


def raw(server: Served, head: str) -> str:
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as line:
        shown = f"authorization: Bearer {server.token()}\r\nconnection: close\r\n\r\n"
        line.sendall((head + shown).encode("latin-1"))
        return line.makefile("rb").read().decode("latin-1")


SECRETS = {"API_TOKEN": "canary", "DB": "postgres://u:canary@h/db", "PASSED": "canary"}
STEP = {"command": "true", "environment": "current", "environment_variables": SECRETS}
PASSED = {"properties": {"allranks.passed_on": "PASSED"}}


@pytest.mark.medium
def test_readers_see_no_secret_of_what_will_be_a_job(server: Served) -> None:
    """As they see none of jobs; members see those of deployments, which their jobs are made of."""
    sweep = {"trial": STEP, "search_space": {"lr": {"type": "choice", "values": [1]}}, **PASSED}
    sweep |= {"objective": {"goal": "minimize", "primary_metric": "x"}, "type": "sweep"}
    sweep |= {"limits": {"max_total_trials": 1}}
    pipeline = {"type": "pipeline", "jobs": {"s": {**STEP, **PASSED}}}
    component = {"type": "pipeline", "name": "c", "jobs": {"s": STEP}, **PASSED}
    manual = {"name": "s", "trigger": {"type": "manual"}, "create_job": STEP}
    deployment = {"deployment": {"component": component, "type": "pipeline"}}
    variables = {"environment_variables": {"API_TOKEN": "canary"}}
    online = {"deployment": {"name": "d", **STEP, **variables}}
    online["submission"] = {**JOB, "spec": STEP}
    people = server.people
    for method, address, body in (
        ("POST", "jobs", {"spec": {**sweep, "name": "p1"}, "in_place": "/"}),
        ("POST", "jobs", {"spec": {**pipeline, "name": "p2"}, "in_place": "/"}),
        ("POST", "components", component),
        ("POST", "schedules", {"schedule": manual, "submission": {**JOB, "spec": STEP | PASSED}}),
        ("PUT", "batch-endpoints/b", {}),
        ("PUT", "batch-endpoints/b/deployments/d", {**deployment, "component": component}),
        ("POST", "endpoints", {"name": "e"}),
        ("POST", "endpoints/e/deployments", online),
    ):
        answer = people.request(method, f"/api/v1/{address}", json=body)
        assert answer.status_code in (200, 201), (address, answer.text)
    roles = {role: made(server, f"secrets-{role}", role) for role in ("reader", "member")}
    deployments = ("batch-endpoints", "batch-endpoints/b", "endpoints", "endpoints/e")
    deployments = (*deployments, "endpoints/e/deployments/d")
    others = ("jobs/p1", "jobs/p2", "components", "components/c:1", "schedules", "schedules/s")
    for address in (*deployments, *others):
        answer = people.get(f"/api/v1/{address}", headers=roles["reader"])
        assert answer.status_code == 200
        assert "canary" not in answer.text, (address, answer.text)
    for address in others:
        assert "canary" not in people.get(f"/api/v1/{address}").text, address
    for address in deployments:
        assert "canary" in people.get(f"/api/v1/{address}", headers=roles["member"]).text, address
    assert people.delete("/api/v1/endpoints/e").status_code == 200
