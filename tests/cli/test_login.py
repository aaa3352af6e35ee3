"""Servers on other machines by name: `allranks login`, `allranks context`."""

from __future__ import annotations

import json
import os
import pty
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from allranks.cli.admin.login import whole_url
from allranks.errors import NotFound, UsageError
from allranks.sdk.connection import contexts
from allranks.sdk.connection.contexts import Contexts, Server
from tests.support import CLI, Allranks, answer, environment, free_port, leave_nothing, until

AT_GPU1 = Server("https://gpu1:7443", "secret", "ab12", "gpu1")


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("SERVER", "TOKEN", "FINGERPRINT", "CONTEXT", "HOME"):
        monkeypatch.delenv(f"ALLRANKS_{name}", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "con fig"))
    return contexts.path()


def keep(*servers: Server) -> None:
    """The first is in use."""
    made = Contexts({server.name: server for server in servers}, {"": servers[0].name})
    contexts.change(lambda _: made)


def test_the_context_in_use_is_chosen_unless_a_variable_names_another(config: Path) -> None:
    assert contexts.chosen({}) is None
    keep(AT_GPU1, Server("http://b:1", "t", "", "b"))
    assert contexts.chosen({}) == AT_GPU1
    assert contexts.chosen({"ALLRANKS_HOME": "/home/x"}) is None
    assert contexts.chosen({"ALLRANKS_HOME": "/home/x", "ALLRANKS_CONTEXT": "gpu1"}) == AT_GPU1
    assert contexts.chosen({"ALLRANKS_CONTEXT": "local"}) is None
    by_url = contexts.chosen({"ALLRANKS_SERVER": "https://gpu1:7443/", "ALLRANKS_CONTEXT": "b"})
    assert by_url == AT_GPU1._replace(name="")
    other = contexts.chosen({"ALLRANKS_SERVER": "https://c:1", "ALLRANKS_FINGERPRINT": "AB:12"})
    assert other == Server("https://c:1", "", "ab12")
    own = contexts.chosen({"ALLRANKS_TOKEN": "own"})
    assert own == AT_GPU1._replace(token="own")
    with pytest.raises(NotFound, match="context 'nosuch' not found"):
        contexts.chosen({"ALLRANKS_CONTEXT": "nosuch"})


def test_each_home_has_its_own_context_in_use(config: Path, tmp_path: Path) -> None:
    keep(AT_GPU1, Server("http://b:1", "t", "", "b"))
    mine = {"ALLRANKS_HOME": str(tmp_path / "x" / "..")}
    contexts.change(lambda stored: stored.using("b", mine))
    chosen = contexts.chosen({"ALLRANKS_HOME": str(tmp_path)})
    assert chosen is not None
    assert chosen.name == "b"
    assert contexts.chosen({}) == AT_GPU1
    contexts.change(lambda stored: stored.using("", mine))
    assert contexts.chosen(mine) is None
    assert contexts.chosen({}) == AT_GPU1


def test_the_file_of_a_version_without_homes_is_read(config: Path) -> None:
    keep(AT_GPU1)
    content = json.loads(config.read_text())
    content["current"] = content.pop("in_use")[""]
    config.write_text(json.dumps(content))
    assert contexts.chosen({}) == AT_GPU1


def test_of_two_logins_to_one_server_that_in_use_counts(config: Path) -> None:
    as_bob = AT_GPU1._replace(name="bob", token="bob's")
    keep(as_bob, AT_GPU1)
    contexts.change(lambda stored: stored.using("gpu1", {}))
    chosen = contexts.chosen({"ALLRANKS_SERVER": AT_GPU1.url})
    assert chosen is not None
    assert chosen.token == AT_GPU1.token


def test_logins_at_the_same_time_are_all_kept(config: Path) -> None:
    def add(number: int) -> None:
        server = Server(f"http://h:{number + 1}", "t", "", f"s{number}")
        contexts.change(lambda stored: Contexts({**stored.servers, server.name: server}))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(40)))
    assert len(contexts.read().servers) == 40


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("gpu1", "https://gpu1:7443"),
        ("HTTPS://gpu1:443/", "https://gpu1:443"),
        ("::1", "https://[::1]:7443"),
        ("[::1]:80", "https://[::1]:80"),
        ("http://10.0.0.1", "http://10.0.0.1:7443"),
        ("https://gpu1:443/ui/jobs/x", "https://gpu1:443"),
    ],
)
def test_an_address_is_completed(text: str, url: str) -> None:
    assert whole_url(text) == url


def test_only_its_owner_reads_the_file(config: Path) -> None:
    keep(AT_GPU1)
    config.chmod(0o644)
    assert contexts.chosen({}) == AT_GPU1
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    assert stat.S_IMODE(config.parent.stat().st_mode) == 0o700
    assert sorted(path.name for path in config.parent.iterdir()) == ["contexts.json", "lock"]


DAMAGED = [
    "",
    "[]",
    '{"contexts": {"a": 1}, "current": ""}',
    "\0",
    "[" * 100_000,
    '{"contexts": {}, "in_use": {"": ["a"]}}',
    '{"contexts": {"a": {"url": 3, "token": "", "fingerprint": ""}}, "in_use": {"": "a"}}',
]


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_file_is_named(config: Path, content: str) -> None:
    config.parent.mkdir(parents=True)
    config.write_text(content)
    with pytest.raises(UsageError, match="is damaged") as caught:
        contexts.chosen({})
    assert caught.value.where == str(config)


# ---------------------------------------------------------------- against a real server


class Elsewhere(NamedTuple):
    """A user of another machine, with a home and configuration of their own."""

    run: Allranks
    url: str
    fingerprint: str
    token: str
    env: dict[str, str]


@pytest.fixture
def elsewhere(allranks: Allranks, tmp_path: Path) -> Iterator[Elsewhere]:
    port = free_port("127.0.0.2")
    words = ("server", "start", "--host", "127.0.0.2", "--host-port", port)
    fingerprint = answer(allranks, *words)["fingerprint"]
    token = answer(allranks, "server", "token", "create", "ann")["token"]
    user = tmp_path / "ann"
    user.mkdir()
    env = {"HOME": str(user), "XDG_CONFIG_HOME": "", "ALLRANKS_HOME": ""}

    def run(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
        return allranks(*words, env=env | options.pop("env", {}), **options)

    yield Elsewhere(run, f"https://127.0.0.2:{port}", fingerprint, token, env)
    leave_nothing(user / ".allranks")


@pytest.mark.slow
def test_a_running_job_is_entered_over_tls(elsewhere: Elsewhere) -> None:
    words = ("login", elsewhere.url, "--token-stdin", "--fingerprint", elsewhere.fingerprint)
    assert elsewhere.run(*words, input=elsewhere.token).returncode == 0
    started = elsewhere.run("run", "--name", "far", "--detach", "--", "sleep", "600")
    assert started.returncode == 0, started.stderr
    enter = ("job", "exec", "far", "--")
    until(lambda: elsewhere.run(*enter, "true").returncode == 0)
    # More than a record of TLS, and than what waits for a slow reader.
    assert elsewhere.run(*enter, "wc", "-c", input="x" * 3_000_000).stdout.strip() == "3000000"
    assert len(elsewhere.run(*enter, "sh", "-c", "yes | head -c 3000000").stdout) == 3_000_000
    assert elsewhere.run("job", "shell", "far", input="exit 4\n").returncode == 4


@pytest.mark.medium
def test_a_login_lasts_until_another_server_is_used(elsewhere: Elsewhere) -> None:
    words = ("login", elsewhere.url, "--name", "gpu1", "--token-stdin")
    done = elsewhere.run(*words, "--fingerprint", elsewhere.fingerprint, input=elsewhere.token)
    assert done.returncode == 0, done.stderr
    assert f"logged in to {elsewhere.url} as ann (member)" in done.stderr
    assert elsewhere.token not in done.stdout + done.stderr
    done = elsewhere.run("run", "--name", "far", "--", "echo", "hello")
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr
    assert [job["name"] for job in answer(elsewhere.run, "job", "list")] == ["far"]
    assert f"{elsewhere.url} (context gpu1)" in elsewhere.run("server", "status").stdout
    listed = answer(elsewhere.run, "context", "list")
    assert [(each["name"], each["current"]) for each in listed] == [
        ("local", False),
        ("gpu1", True),
    ]
    for words in (("server", "backup", "x"), ("server", "start", "--host", "127.0.0.9")):
        refused = elsewhere.run(*words)
        assert refused.returncode == 2
        assert "context gpu1" in refused.stderr
        assert "hint: `allranks context use local`" in refused.stderr
    lost = {"ALLRANKS_CONTEXT": "typo"}
    assert "gpu1" in elsewhere.run("context", "list", env=lost).stdout
    assert "✗ server" in elsewhere.run("doctor", "-v", env=lost).stdout

    assert elsewhere.run("context", "use", "local").returncode == 0
    assert "no jobs" in elsewhere.run("job", "list").stderr
    assert elsewhere.run("server", "stop").returncode == 0
    with_it = elsewhere.run("job", "list", "--json", env={"ALLRANKS_CONTEXT": "gpu1"})
    assert json.loads(with_it.stdout)[0]["name"] == "far"
    assert elsewhere.run("context", "delete", "--yes", "gpu1").returncode == 0
    assert "not found" in elsewhere.run("context", "use", "gpu1").stderr


@pytest.mark.medium
def test_what_is_wrong_is_said_and_nothing_kept(elsewhere: Elsewhere) -> None:
    pinned = ("--fingerprint", elsewhere.fingerprint)
    for words, told, given in (
        (("login", elsewhere.url, "--token-stdin"), "no authority vouches", elsewhere.token),
        (("login", elsewhere.url, "--token-stdin", *pinned), "standard input has no line", "\n"),
        (("login", elsewhere.url, "--token-stdin", *pinned), "does not match this", "wrong\n"),
        (("login", elsewhere.url, "--fingerprint", "00" * 32), "does not match the", ""),
        (("login", elsewhere.url, "--fingerprint", "3d88"), "64 hexadecimal digits", ""),
        (("login", "http://x", "--fingerprint", "00" * 32), "there is no certificate", ""),
        (("login", elsewhere.url, "--token-stdin", *pinned), "this is not a token", "bär\n"),
        (("login", "https://127.0.0.1:1"), "no server answers", ""),
        (("login", "ftp://x"), "is not the URL", ""),
        (("login", elsewhere.url, "--name", "local", *pinned), "this machine's own", ""),
    ):
        env = {} if given else {"ALLRANKS_TOKEN": elsewhere.token}
        done = elsewhere.run(*words, input=given, env=env)
        assert done.returncode != 0
        assert told in done.stderr, (words, done.stderr)
        assert elsewhere.token not in done.stderr
    assert [each["name"] for each in answer(elsewhere.run, "context", "list")] == ["local"]


@pytest.mark.medium
@pytest.mark.parametrize(("reply", "exit_code"), [("y\n", 0), ("\n", 2)])
def test_a_person_is_asked_about_an_unknown_certificate(
    elsewhere: Elsewhere, home: Path, reply: str, exit_code: int
) -> None:
    ours, theirs = pty.openpty()
    env = environment(home) | elsewhere.env | {"ALLRANKS_TOKEN": elsewhere.token}
    argv = [sys.executable, "-c", CLI, "login", elsewhere.url]
    os.write(ours, reply.encode())
    done = subprocess.run(argv, env=env, stdin=theirs, capture_output=True, text=True, timeout=60)
    os.close(ours)
    os.close(theirs)
    assert done.returncode == exit_code, done.stderr
    assert elsewhere.fingerprint in done.stderr
    if exit_code == 0:  # a certificate that is trusted once is not asked about again
        again = elsewhere.run("login", elsewhere.url, "--token-stdin", input=elsewhere.token)
        assert again.returncode == 0, again.stderr
    names = [each["name"] for each in answer(elsewhere.run, "context", "list")]
    assert names == ["local", *["127.0.0.2"] * (exit_code == 0)]
