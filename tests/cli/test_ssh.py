"""`allranks job ssh-config`: OpenSSH's own programs in real jobs."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_enter import exchange, listening, processes, start  # noqa: F401
from tests.support import Allranks, environment, until

SFTP = Path(__file__).parents[2] / "src/allranks/agent/inside/allranks_sftp.py"
NEEDED = ("ssh", "scp", "sftp", "rsync", "ssh-keygen")
MISSING = [program for program in NEEDED if shutil.which(program) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")


class Ssh:
    """OpenSSH's programs with the entry of a job."""

    def __init__(self, allranks: Allranks, home: Path, job: str, *words: object) -> None:
        self.env = {**environment(home), "XDG_CONFIG_HOME": str(home.parent / "config")}
        made = allranks("job", "ssh-config", job, *words, env=self.env)
        assert made.returncode == 0, made.stderr
        self.host = made.stdout.strip()
        (self.config,) = (home.parent / "config").glob(f"allranks/ssh/*/{self.host}/config")

    def __call__(
        self, program: str, *words: object, **more: Any
    ) -> subprocess.CompletedProcess[Any]:
        argv = [program, "-F", str(self.config), *map(str, words)]
        more = {"text": True, **more}
        return subprocess.run(argv, env=self.env, capture_output=True, timeout=120, **more)


@pytest.mark.slow
def test_openssh_s_programs_get_in(
    allranks: Allranks,
    code: Path,
    home: Path,
    tmp_path: Path,
    listening: int,  # noqa: F811
):
    start(allranks, code, "one", 2)
    refused = allranks("job", "ssh-config", "one", "--rank", 9)
    assert (refused.returncode, "one has no rank 9" in refused.stderr) == (2, True)
    ssh = Ssh(allranks, home, "one", "--rank", 1)
    done = ssh("ssh", ssh.host, 'cat made; echo " $RANK"; echo no >&2; exit 7')
    assert (done.stdout, done.stderr, done.returncode) == ("by rank 1 1\n", "no\n", 7)
    flood = os.urandom(3_000_000)
    assert ssh("ssh", ssh.host, "cat", text=False, input=flood).stdout == flood
    assert ssh("ssh", ssh.host, "kill -9 $$").returncode == 137
    # A reader that has enough ends what writes.
    endless = f"ssh -F '{ssh.config}' {ssh.host} 'cat /dev/zero' | head -c 10 | wc -c"
    done = subprocess.run(endless, shell=True, env=ssh.env, capture_output=True, timeout=60)
    assert done.stdout.strip() == b"10"
    until(lambda: not processes("cat /dev/zero"))
    # Without a command a shell reads commands; in a terminal it has one of its own.
    assert ssh("ssh", "-T", ssh.host, input="exit 5\n").returncode == 5
    shown = ssh("ssh", "-tt", ssh.host, "tty; stty size")
    assert "/dev/pts/" in shown.stdout
    folder = tmp_path / "there it's"
    (folder / "in ner").mkdir(parents=True)
    (folder / "in ner" / "file\nname").write_bytes(flood)
    for program, *words in (
        ("scp", "-r", folder, f"{ssh.host}:copy"),
        ("scp", "-r", f"{ssh.host}:copy", tmp_path / "back"),
    ):
        done = ssh(program, *words)
        assert done.returncode == 0, done.stderr
    same = ["diff", "-r", str(folder), str(tmp_path / "back")]
    assert subprocess.run(same, capture_output=True).returncode == 0
    (folder / "link").symlink_to("in ner")  # scp follows no links to folders
    shell = f"ssh -F '{ssh.config}'"
    for words in (
        ["-a", f"{folder}/", f"{ssh.host}:synced"],
        ["-a", f"{ssh.host}:synced/", f"{tmp_path}/synced"],
    ):
        done = subprocess.run(["rsync", "-e", shell, *words], env=ssh.env, capture_output=True)
        assert done.returncode == 0, done.stderr
    assert subprocess.run([*same[:-1], str(tmp_path / "synced")]).returncode == 0
    # Ports of the node, and nothing else.
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = ["-N", "-L", f"127.0.0.1:{port}:localhost:{listening}"]
    with subprocess.Popen(["ssh", "-F", str(ssh.config), *words, ssh.host], env=ssh.env) as forward:
        until(lambda: is_open(port))
        assert exchange(f"127.0.0.1:{port}", b"ab" * 500_000) == b"AB" * 500_000
        forward.kill()
    refused = ssh("ssh", "-W", "example.com:80", ssh.host)
    assert "only ports of the rank's node" in refused.stderr
    # A client that vanishes leaves nothing.
    argv = ["ssh", "-F", str(ssh.config), ssh.host, "sleep 987650"]
    with subprocess.Popen(argv, env=ssh.env) as client:
        until(lambda: len(processes("sleep 987650")) > 1)
        client.kill()
    until(lambda: not processes("sleep 987650"))
    events = allranks("job", "events", "one").stdout
    for entry in ("exec: /bin/bash -c 'cat made", "message=sftp", f"message=port {listening}"):
        assert entry in events
    # The key ends with the job.
    assert ssh.config.parent.joinpath("key").stat().st_mode & 0o777 == 0o600
    assert allranks("job", "cancel", "one").returncode == 0
    allranks("job", "wait", "one")
    refused = ssh("ssh", ssh.host, "true")
    assert (refused.returncode, "one has ended" in refused.stderr) == (255, True)
    assert not ssh.config.parent.exists()
    again = allranks("job", "ssh-config", "one", env=ssh.env)
    assert (again.returncode, "has ended" in again.stderr) == (2, True)


def is_open(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.slow
def test_keys_of_the_job_file_and_az_connect_ssh(
    allranks: Allranks, code: Path, home: Path, tmp_path: Path
):
    for name in ("mine", "other"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)]
        subprocess.run(words, check=True)
    (code / "job.yml").write_text(
        "command: sleep 600\nenvironment: current\nname: served\n"
        "services:\n  my_ssh:\n    type: ssh\n    ssh_public_keys: |\n"
        f"      no key\n      {(tmp_path / 'mine.pub').read_text()}"
    )
    assert allranks("job", "create", "-f", "job.yml").returncode == 0
    until(lambda: allranks("job", "exec", "served", "--", "true").returncode == 0)
    ssh = Ssh(allranks, home, "served")
    for name, code_ in (("mine", 0), ("other", 255)):
        own = ["-o", "IdentitiesOnly=yes", "-o", f"IdentityFile={tmp_path / name}"]
        (ssh.config.parent / "key").unlink(missing_ok=True)
        assert ssh("ssh", *own, ssh.host, "true").returncode == code_
    words = ["-n", "served", "--node-index", "0", "-f", tmp_path / "mine"]
    connected = allranks("az", "ml", "job", "connect-ssh", *words, env=ssh.env, input="exit 6\n")
    assert connected.returncode == 6, connected.stderr
    assert allranks("job", "cancel", "served").returncode == 0


@pytest.mark.medium
def test_our_sftp_server(tmp_path: Path):
    (tmp_path / "a").write_bytes(os.urandom(1_000_000))
    (tmp_path / "ca").mkdir()
    words = "put a b\nrename b c\nln c d\nln -s c e\nchmod 600 c\nmkdir f\nput -p a f/g\nls -la\n"
    words += "df\nreget c h\n-get nonsuch\n-mkdir f\n-rename c d\nrm e\nrm f/g\nrmdir f\n"
    argv = ["sftp", "-D", f"{sys.executable} -I -S {SFTP}", "-b", "-"]
    done = subprocess.run(argv, cwd=tmp_path, input=words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "c").read_bytes() == (tmp_path / "h").read_bytes()
    assert (tmp_path / "c").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "d").samefile(tmp_path / "c")
    assert sorted(os.listdir(tmp_path)) == ["a", "c", "ca", "d", "h"]
    assert "nonsuch" in done.stderr
    # What is no request ends it, or gets an answer that says so.
    broken = (b"\0\0\0\x05\x01\0\0\0\x03" + b"\0\0\0\x06\x04\0\0\0\x07\xff", b"\xff" * 40, b"x")
    for data in broken:
        argv = [sys.executable, "-I", "-S", str(SFTP)]
        done_ = subprocess.run(argv, input=data, capture_output=True, timeout=60)
        assert (done_.returncode, done_.stderr) == (0, b"")
