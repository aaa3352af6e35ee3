"""Secrets, planted wherever a user can, and then looked for: in all that commands show, and in
every file of the home. The table says where each may be, and why."""

import json
import os
import stat
from pathlib import Path

import pytest

from allranks.server.auth.identity import Auth
from allranks.settings import Home
from tests.support import command_line, free_port

# A real server and jobs.
pytestmark = pytest.mark.slow

RECORD = "the record, 0600: ranks have to be given it, also when the job runs again"
# Each secret, and where in the home it may be: a beginning of a path, and why.
CANARIES: dict[str, dict[str, str]] = {
    "canary-variable": {"allranks.db": RECORD},
    "canary-passed": {"allranks.db": RECORD},
    "canary-input": {"allranks.db": "the record: the node that fetches the data needs it"},
    "canary-index": {
        "allranks.db": "the record: uv needs it where the environment is made",
        "blobs/": "the requirements lie in the folder of the code, which is sent as it is",
    },
    "canary-proxy": {"allranks.db": "the record: the ranks' own way out"},
    "canary-command": {"allranks.db": "the record: the command as it was written"},
    "canary-asset": {"allranks.db": "the record: who fetches it needs it"},
    "canary-datastore": {},  # in the record only as it is encrypted
}


@pytest.mark.timeout(400)
def test_secrets_are_where_they_must_be_and_nowhere_else(home: Path, code: Path) -> None:
    allranks = command_line(home, code)
    said: list[str] = []

    def told(*words: object, **options: object) -> str:
        done = allranks(*words, **options)
        said.append(done.stdout + done.stderr)
        return str(done.stdout)

    account = {"access_key_id": "who", "secret_access_key": "canary-datastore"}
    where = ("--type", "s3", "--bucket", "b", "--region", "r")
    told("datastore", "create", "s", *where, "--credentials", "-", input=json.dumps(account))
    told("data", "create", "d", "--path", "https://me:canary-asset@data.invalid/x")
    (code / "e.txt").write_text("-i https://me:canary-index@pypi.invalid/simple\nsix\n")
    token = told("server", "token", "create", "ann").strip()
    words = ["-e", "current", "--env", "MY_API_TOKEN=canary-variable", "--env", "PASSED"]
    words += ["--set", "inputs.x={type: uri_file, path: 'https://me:canary-input@data.invalid/x'}"]
    shell = "curl https://me:canary-command@host.invalid || true # $AZURE_ML_INPUT_x"
    env = {"PASSED": "canary-passed", "http_proxy": "http://me:canary-proxy@proxy.invalid"}
    for more in (["--dry-run"], ["--dry-run", "--json"], ["--name", "one"]):
        told("run", *words, *more, "--", "bash", "-c", shell, env=env)
    told("run", "-e", "e.txt", "--name", "two", "--", "true", env=env)
    for name in ("one", "two"):
        for what in ("show", "events", "logs"):
            told("job", what, name)
        told("job", "show", name, "--json")
        told("job", "events", name, "--json")
    told("job", "list", "--json")
    for look in (["datastore", "show", "s"], ["data", "show", "d"]):
        told(*look, "--json")
    told("server", "token", "list", "--json")

    shown = "\n".join(said)
    for canary in CANARIES:
        assert canary not in shown, shown[max(0, shown.find(canary) - 300) :][:400]
    own = (home / "token").read_text().strip()
    agent = Auth(Home(home)).agent_token("one", 1).rpartition(":")[2]
    rank = Auth(Home(home)).rank_token("one", 1).rpartition(":")[2]
    for secret in (own, agent, rank):
        assert secret not in shown
    assert shown.count(token) == 1

    allowed = CANARIES | {own: {"token": "it is that file"}, agent: {}, rank: {}, token: {}}
    for path in files(home):
        content, place = path.read_bytes(), str(path.relative_to(home))
        for secret, places in allowed.items():
            if secret.encode() in content:
                assert any(place.startswith(each) for each in places), (secret, place)


def test_a_home_is_its_owners_only(home: Path, code: Path) -> None:
    """Whatever the umask, and whoever made the folder."""
    home.mkdir()
    home.chmod(0o777)
    (code / "x").write_text("x")
    allranks = command_line(home, code)
    before = os.umask(0)
    try:
        done = allranks("run", "--name", "j", "-o", "o", "--", "bash", "-c", "echo hi > outputs/m")
        assert done.returncode == 0, done.stderr
        allranks("model", "register", "m", "--job", "j", "--path", "outputs/m")
        allranks("data", "create", "d", "--path", "x")
        allranks("server", "token", "create", "ann")
        port = free_port("127.0.0.2")
        done = allranks("server", "start", "--host", "127.0.0.2", "--host-port", port)
        assert done.returncode == 0, done.stderr
    finally:
        os.umask(before)
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    wide = [
        f"{path.name} {stat.S_IMODE(path.stat().st_mode):o}"
        for path in home.iterdir()
        if path.is_file() and path.stat().st_mode & 0o077
    ]
    assert wide == []


def test_no_token_is_on_a_command_line(home: Path, code: Path) -> None:
    allranks = command_line(home, code)
    script = (
        "tr '\\0' ' ' < /proc/$PPID/cmdline; cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '"
    )
    done = allranks("run", "--name", "j", "--", "bash", "-c", script)
    assert done.returncode == 0, done.stderr
    auth = Auth(Home(home))
    for secret in (
        (home / "token").read_text().strip(),
        auth.agent_token("j", 1).rpartition(":")[2],
        auth.rank_token("j", 1).rpartition(":")[2],
    ):
        assert secret not in done.stdout


def files(root: Path) -> list[Path]:
    return [each for each in root.rglob("*") if stat.S_ISREG(each.lstat().st_mode)]
