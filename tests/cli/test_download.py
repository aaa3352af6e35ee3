"""`job download` against a real server: interrupted, killed, changed meanwhile, twice at once."""

import json
import os
import pty
import re
import shlex
import shutil
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from allranks.api import routes
from allranks.cli.output import show
from allranks.cli.output.progress_line import ProgressLine
from allranks.core.transfer_progress import Progress, amounts
from allranks.errors import NotFound, ServerError, Unreachable, UsageError
from allranks.http_client import Client
from allranks.sdk.connection import reopened
from allranks.sdk.transfer.download import download
from tests.proxy import Proxy
from tests.support import CLI, command_line, environment, until

# Real servers and processes, about half a second a test.
slow = pytest.mark.slow

MB = 1 << 20
# Past the first, tests that cut it may say where: nothing in it repeats.
LARGE = os.urandom(8 * MB)


class Bed:
    """A job that has ended, the folder of its outputs in the server's record, and the ways in."""

    def __init__(self, home: Path, folder: Path, name: str) -> None:
        self.home, self.folder, self.name = home, folder, name
        self.children: list[subprocess.Popen[str]] = []
        self.allranks = command_line(home, folder)
        done = self.allranks("run", "--name", name, "--", "bash", "-c", "echo x > outputs/first")
        assert done.returncode == 0, done.stderr
        self.outputs = home / "jobs" / name / "artifacts" / "outputs"
        self.got = folder / "got" / "artifacts" / "outputs"

    @property
    def url(self) -> str:
        return str(json.loads((self.home / "server.json").read_text())["url"])

    @property
    def token(self) -> str:
        return (self.home / "token").read_text().strip()

    def download(self, *words: object, through: Proxy | None = None, **options: Any) -> Any:
        """Run it; with ``--json``, what it says."""
        env = self.way(through)
        return self.allranks("job", "download", self.name, "-p", "got", *words, env=env, **options)

    def told(self, *words: object, through: Proxy | None = None) -> dict[str, Any]:
        done = self.download("--json", *words, through=through)
        assert done.returncode == 0, done.stderr
        told: dict[str, Any] = json.loads(done.stdout)
        return told

    def begun(self, through: Proxy, *words: object, **options: Any) -> subprocess.Popen[str]:
        argv = [sys.executable, "-c", CLI, "job", "download", self.name, "-p", "got"]
        piped = {"text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        env = environment(self.home) | self.way(through) | {"NO_COLOR": "1"}
        argv += map(str, words)
        begun = subprocess.Popen(argv, env=env, cwd=self.folder, **(piped | options))
        self.children.append(begun)
        return begun

    def end(self) -> None:
        for each in self.children:
            if each.poll() is None:
                each.kill()
            each.communicate()

    def way(self, through: Proxy | None) -> dict[str, str]:
        if through is None:
            return {}
        return {"ALLRANKS_SERVER": through.url, "ALLRANKS_TOKEN": self.token}

    def same(self) -> bool:
        """Whether all outputs are here, as they are on the server, and nothing else is."""

        def all_of(root: Path) -> dict[str, bytes]:
            files = (path for path in root.rglob("*") if path.is_file())
            return {str(path.relative_to(root)): path.read_bytes() for path in files}

        got, there = all_of(self.got), all_of(self.outputs)
        assert sorted(got) == sorted(there)
        return got == there


@pytest.fixture
def bed(shared_home: Path, code: Path, request: pytest.FixtureRequest) -> Iterator[Bed]:
    made = Bed(shared_home, code, f"download-{abs(hash(request.node.nodeid))}")
    yield made
    made.end()


@pytest.fixture
def own(home: Path, code: Path) -> Iterator[Bed]:
    """One whose server may be killed."""
    made = Bed(home, code, "download")
    yield made
    made.end()


@pytest.mark.medium
def test_nothing_to_download_is_an_error_once_the_job_has_ended(shared):
    shared("run", "--name", "no-files", "-o", "score", "--", "bash", "-c", "exit 7")
    for words, error in (
        ((), "no-files has no files"),
        (("--output-name", "score"), "the output score of no-files has no files"),
    ):
        done = shared("job", "download", "no-files", "-p", "got", *words)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert f"error: {error}\n\nhint: what it has: allranks job files no-files" in done.stderr


@slow
def test_what_is_there_already_is_not_fetched_again(bed):
    for number in range(300):
        (bed.outputs / f"{number}").write_text(f"{number}\n" * number)
    (bed.outputs / "large").write_bytes(LARGE)
    first = bed.download()
    assert bed.same()
    files = len(first.stdout.splitlines())
    assert files >= 302
    assert f"fetched {files} files, 8." in first.stderr
    assert (bed.got / "7").stat().st_mtime_ns == (bed.outputs / "7").stat().st_mtime_ns

    (bed.outputs / "7").write_text("changed")
    os.utime(bed.outputs / "large", ns=(1, 1))  # the same size, another time
    (bed.outputs / "8").unlink()
    (bed.got / "9").unlink()
    (bed.got / "10").write_text("spoilt")
    again = bed.told()
    assert sorted(Path(path).name for path in again["replaced"]) == ["10", "7", "large"]
    fetched = {Path(each["path"]).name for each in again["files"] if each["fetched"]}
    assert fetched == {"7", "9", "10", "large"}
    assert (again["fetched"], again["there"], again["gone"]) == (4, files - 5, [])
    assert {"path": "got/artifacts/outputs/large", "bytes": 8 * MB, "fetched": True} in again[
        "files"
    ]
    (bed.got / "8").unlink()
    assert bed.same()
    last = bed.download()
    assert f"fetched 0 files, 0 bytes ({files - 1} were there already)" in last.stderr
    assert bed.download("--quiet").stderr == ""


@slow
def test_files_of_another_job_are_refused(bed):
    """In whichever way the folder is named, and whatever of the job it has."""
    assert "replaced" not in bed.download().stderr
    other = f"{bed.name}-other"
    write = "for n in first 1 2 3 4; do echo other > outputs/$n; done"
    assert bed.allranks("run", "-q", "--name", other, "--", "bash", "-c", write).returncode == 0
    before = (bed.got / "first").read_text()
    (bed.folder / "link").symlink_to("got")
    for words in (("-p", "got"), ("-p", "link/"), ("-p", f"{bed.folder}/got", "--path", "*/1")):
        done = bed.allranks("job", "download", other, *words)
        assert done.returncode == 2
        assert f"the folder has files of the job {bed.name}" in done.stderr
        assert "hint: name a folder for each job" in done.stderr
    assert (bed.got / "first").read_text() == before
    # A job that is not there fills no folder.
    assert bed.allranks("job", "download", "nobody", "-p", "new").returncode == 2
    assert bed.allranks("job", "download", other, "-p", "new").returncode == 0
    assert bed.allranks("job", "download", bed.name, "-p", "new").returncode == 2

    mixed = ("job", "download", other, "-p", "got", "--any-folder")
    note = "note: replaced a file that was older or different: got/artifacts/outputs/first\n"
    assert bed.allranks(*mixed).stderr.endswith(note)
    os.utime(bed.got / "first", (1, 1))
    assert bed.allranks(*mixed).stderr.endswith(note)
    assert bed.allranks(*mixed, "-q").stderr == ""
    shutil.rmtree(bed.folder / "new" / "artifacts")
    assert bed.allranks("job", "download", bed.name, "-p", "new").returncode == 0
    # Azure's line mixes, as Azure's does.
    az = ("az", "ml", "job", "download", "-n", other, "-p", "new")
    assert bed.allranks(*az).returncode == 0


@slow
def test_a_run_brings_its_files_when_it_has_ended(bed):
    """Also those of a failed one; the exit code stays the job's own."""
    words = ("bash", "-c", 'echo y > outputs/second; echo z > "$AZURE_ML_OUTPUT_model/w"; exit 7')
    name = f"{bed.name}-own"
    run = ("run", "--name", name, "-o", "model", "--download", "a b")
    done = bed.allranks(*run, "--", *words)
    assert (done.returncode, done.stdout) == (7, ""), done.stderr
    assert done.stderr.endswith("into a b\n")
    assert (bed.folder / "a b" / "artifacts" / "outputs" / "second").read_text() == "y\n"
    assert (bed.folder / "a b" / "named-outputs" / "model" / "w").read_text() == "z\n"

    # What cannot be is said before anything runs.
    (bed.folder / "file").write_text("")
    for folder, more, told in (
        ("new", ("--detach",), "not followed"),
        ("new", ("--dry-run",), "leave out --dry-run"),
        ("a b", (), f"files of the job {name}"),
        ("file", (), "cannot download into 'file': file exists"),
        ("", (), "no folder is named"),
    ):
        done = bed.allranks("run", "--name", "later", *more, "--download", folder, "--", "true")
        assert done.returncode == 2
        assert told in done.stderr
    assert bed.allranks("job", "show", "later").returncode != 0

    # What is in the way meanwhile is told, beside the job's own end.
    gone = shlex.quote(str(bed.folder / "gone"))
    block = ("bash", "-c", f"echo y > outputs/y; rmdir {gone}; touch {gone}; exit 7")
    done = bed.allranks("run", "--download", "gone", "--", *block)
    assert done.returncode == 7
    assert "error: its files were not downloaded: gone" in done.stderr


@slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_download_goes_on(bed, number):
    (bed.outputs / "large").write_bytes(LARGE)
    part = bed.got / "large.part"
    with Proxy(bed.url, at=5 * MB) as proxy:
        begun = bed.begun(proxy)
        assert proxy.reached.wait(30)
        until(lambda: part.exists() and part.stat().st_size > 4 * MB)
        begun.send_signal(number)
        _, said = begun.communicate(timeout=120)
    assert not (bed.got / "large").exists()
    if number == signal.SIGINT:
        assert begun.returncode == 130
        assert said == "\ninterrupted; run the same command again to continue\n"
    with Proxy(bed.url) as proxy:
        told = bed.told(through=proxy)
        assert proxy.sent < 4.2 * MB
    assert told["bytes_received"] < 4 * MB
    assert bed.same()


@slow
def test_a_part_is_gone_on_with_only_as_far_as_it_is_the_servers(bed):
    bed.download()
    for name, part in (
        ("grown", LARGE[: 3 * MB]),
        ("changed", b"x" + LARGE[1 : 3 * MB]),
        ("shrunk", LARGE + b"more"),
        ("whole", LARGE),
    ):
        (bed.outputs / name).write_bytes(LARGE)
        (bed.got / f"{name}.part").write_bytes(part)
    told = bed.told()
    assert told["fetched"] == 4
    assert told["bytes_received"] == 5 * MB + 8 * MB
    assert bed.same()


@slow
def test_a_connection_that_is_cut_is_opened_again(bed):
    (bed.outputs / "large").write_bytes(LARGE)
    for number in range(200):
        (bed.outputs / f"{number}").write_bytes(LARGE[: 10 * number])
    with Proxy(bed.url, at=5 * MB, cut=True) as proxy:
        told = bed.told(through=proxy)
        assert proxy.reached.is_set()
        assert proxy.sent < 12 * MB
    assert told["fetched"] == len(told["files"])
    assert bed.same()


@slow
@pytest.mark.parametrize("by_itself", [True, False], ids=["by-itself", "by-others"])
def test_a_server_that_is_killed_meanwhile(own, by_itself):
    """A home's own server is started again by the download; one elsewhere is waited for."""
    (own.outputs / "large").write_bytes(LARGE)
    server = json.loads((own.home / "server.json").read_text())
    with Proxy(own.url, at=5 * MB) as proxy:
        if by_itself:
            (own.home / "server.json").write_text(json.dumps(server | {"url": proxy.url}))
            env = dict.fromkeys(("ALLRANKS_SERVER", "ALLRANKS_TOKEN"), "")
            own.way = lambda through: env  # type: ignore[method-assign]
        begun = own.begun(proxy, "--json")
        assert proxy.reached.wait(30)
        os.kill(server["pid"], signal.SIGKILL)
        if not by_itself:
            assert own.allranks("server", "start").returncode == 0
        proxy.go_on.set()
        out, said = begun.communicate(timeout=240)
    assert (begun.returncode, said) == (0, "")
    assert json.loads(out)["bytes_received"] < 9 * MB
    assert own.same()


def through(bed: Bed, *hooks: Callable[[], object]) -> Callable[[], Client]:
    """Connect; before each connection after the first (that is told of the files), a hook."""
    left = iter((lambda: None, *hooks))

    def connect() -> Client:
        next(left, lambda: None)()
        return Client(bed.url, bed.token)

    return connect


@slow
def test_files_that_grow_shrink_and_go_while_they_are_fetched(bed):
    for name in ("grows", "shrinks", "goes"):
        (bed.outputs / name).write_bytes(LARGE)
        (bed.outputs / f"small-{name}").write_bytes(LARGE[:1000])

    def change() -> None:
        for name, size in (("", 2 * MB), ("small-", 10)):
            with (bed.outputs / f"{name}grows").open("ab") as file:
                file.write(b"more")
            os.truncate(bed.outputs / f"{name}shrinks", size)
            (bed.outputs / f"{name}goes").unlink()

    fetched = download(through(bed, change), bed.name, bed.folder / "got")
    assert [Path(path).name for path in fetched.gone] == ["goes", "small-goes"]
    assert (bed.got / "grows").read_bytes() == LARGE
    assert (bed.got / "small-grows").read_bytes() == LARGE[:1000]
    assert (bed.got / "shrinks").read_bytes() == LARGE[: 2 * MB]
    assert (bed.got / "small-shrinks").read_bytes() == LARGE[:10]
    assert not list(bed.got.glob("*goes*"))
    bed.download()
    assert bed.same()


@slow
def test_a_file_written_anew_while_it_is_fetched(bed):
    (bed.outputs / "large").write_bytes(LARGE)
    with Proxy(bed.url, at=3 * MB) as proxy:
        begun = bed.begun(proxy)
        assert proxy.reached.wait(30)
        with (bed.outputs / "large").open("r+b") as file:
            file.write(LARGE[::-1])
        proxy.go_on.set()
        _, said = begun.communicate(timeout=120)
    assert begun.returncode == 0, said
    assert bed.same()


class Spoiling(Client):
    """A connection on which a bit flips in whatever is fetched, ``times`` times in all."""

    times = 0

    def call(self, method: str, path: str, *args: Any, **options: Any) -> Any:
        reply = super().call(method, path, *args, **options)
        return reply._replace(body=self._spoilt(reply.body)) if "/bundle" in path else reply

    def part(self, *args: Any, **options: Any) -> Any:
        reply, pieces = super().part(*args, **options)
        return reply, (self._spoilt(piece) for piece in pieces)

    def _spoilt(self, data: bytes) -> bytes:
        if Spoiling.times == 0 or not data:
            return data
        Spoiling.times -= 1
        return data[:-1] + bytes([data[-1] ^ 1])


@slow
@pytest.mark.parametrize("size", [1000, 2 * MB])
def test_what_arrives_otherwise_than_it_was_sent_is_fetched_once_more(bed, size, monkeypatch):
    (bed.outputs / "file").write_bytes(LARGE[:size])
    monkeypatch.setattr(Spoiling, "times", 1)
    got = bed.folder / "got"
    download(lambda: Spoiling(bed.url, bed.token), bed.name, got)
    assert bed.same()
    (bed.got / "file").unlink()
    monkeypatch.setattr(Spoiling, "times", 99)
    with pytest.raises(ServerError, match="differed from the server's file both times") as caught:
        download(lambda: Spoiling(bed.url, bed.token), bed.name, got)
    assert "job wait" in str(caught.value.hint)
    assert sorted(path.name for path in bed.got.iterdir()) == ["first"]


@slow
def test_a_server_that_stays_away(bed, monkeypatch):
    (bed.outputs / "large").write_bytes(LARGE)
    monkeypatch.setattr(reopened, "_PAUSES", (0.01, 0.01))
    with Proxy(bed.url) as proxy:
        connect = lambda: Client(proxy.url, bed.token)  # noqa: E731
        hooks = iter((lambda: None, proxy.close))

        def then_away() -> Client:
            next(hooks, lambda: None)()
            return connect()

        with pytest.raises(Unreachable) as caught:
            download(then_away, bed.name, bed.folder / "got")
    assert (
        caught.value.hint
        == "run the same command again when it is back; what was downloaded is kept"
    )


@slow
def test_two_downloads_into_the_same_folder(bed):
    (bed.outputs / "large").write_bytes(LARGE)
    for number in range(300):
        (bed.outputs / f"{number}").write_bytes(LARGE[: 10 * number])
    with Proxy(bed.url, at=3 * MB) as proxy:
        first = bed.begun(proxy, "--json")
        assert proxy.reached.wait(30)
        with Proxy(bed.url) as another:
            second = bed.begun(another, "--json")
            until(lambda: len(list(bed.got.iterdir())) > 300)  # it waits for the large one
            proxy.go_on.set()
            told = [json.loads(each.communicate(timeout=240)[0]) for each in (first, second)]
    assert sum(each["bytes_received"] for each in told) < 12 * MB
    assert (first.returncode, second.returncode) == (0, 0)
    assert bed.same()


@slow
def test_hostile_names(bed):
    names = [b"a\nb", b"\xff\xfe", b" ", b"-rf", b"x", b"x.part", b"n" * 255, "ü".encode() * 127]
    for name in names:
        for folder, size in ((b"small", 10), (b"l a\nrge", 2 * MB)):
            path = Path(os.fsdecode(os.path.join(os.fsencode(bed.outputs), folder, name)))
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(LARGE[:size])
    done = bed.download(text=False)
    assert done.returncode == 0, done.stderr
    for name in names:
        assert b"/small/" + name + b"\n" in done.stdout
    assert bed.same()
    told = bed.told()
    assert (told["fetched"], told["there"]) == (0, len(told["files"]))


@slow
def test_what_lies_in_the_way_is_told_in_a_sentence(bed, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    bed.got.parent.mkdir(parents=True)
    bed.got.symlink_to(tmp_path / "elsewhere")
    done = bed.download()
    assert done.returncode == 2
    assert "outputs is a symbolic link" in done.stderr
    assert "hint: a symbolic link is in the way" in done.stderr
    assert "Traceback" not in done.stderr
    assert list((tmp_path / "elsewhere").iterdir()) == []
    bed.got.unlink()
    (bed.got / "first").mkdir(parents=True)
    done = bed.download()
    assert "got/artifacts/outputs/first: cannot write here" in done.stderr
    (bed.got / "first").rmdir()
    assert bed.download().returncode == 0
    for output in ("../o", "a/b", "", "/"):
        done = bed.download("--output-name", output)
        assert (done.returncode, "hint: it has: none" in done.stderr) == (2, True)


@slow
@pytest.mark.skipif(os.getuid() != 0, reason="a full disk is a small tmpfs, which root can mount")
def test_a_full_disk(bed):
    (bed.outputs / "large").write_bytes(LARGE)
    got = bed.folder / "got"
    got.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", got], check=True)
    try:
        done = bed.download()
        assert done.returncode == 2
        # Several are fetched at once: which of them meets the full disk first is chance.
        said = r"outputs/\w+: cannot write here: no space left on device"
        assert re.search(said, done.stderr)
        assert "hint: free space on that disk and run the same command again" in done.stderr
        subprocess.run(["mount", "-o", "remount,size=20m", got], check=True)
        assert 4 * MB < bed.told()["bytes_received"] < 6 * MB
        assert bed.same()
    finally:
        subprocess.run(["umount", "--lazy", got], check=True)


@slow
def test_on_a_terminal_it_shows_how_far_it_is(bed):
    (bed.outputs / "large").write_bytes(LARGE)
    (bed.outputs / "n\x1b[2Jasty").write_text("")
    above, below = pty.openpty()
    termios.tcsetwinsize(below, (24, 80))
    with Proxy(bed.url, at=5 * MB) as proxy:
        begun = bed.begun(proxy, stdout=below, stderr=below)
        os.close(below)
        shown = b""

        def read() -> None:
            nonlocal shown
            try:
                while piece := os.read(above, 65536):
                    shown += piece
            except OSError:  # so a terminal ends here
                pass

        reader = threading.Thread(target=read)
        reader.start()
        assert proxy.reached.wait(30)
        until(lambda: b"MB of 8.4 MB, " in shown)
        proxy.go_on.set()
        assert begun.wait(30) == 0
        reader.join()
    os.close(above)
    assert b"MB/s, " in shown
    assert b" s left" in shown
    assert b"n?[2Jasty" in shown
    assert shown.rstrip().splitlines()[-1].startswith(b"fetched ")


def test_what_the_line_says(capsys, monkeypatch):
    progress = Progress("", 3_400_000, 20_000_000, 3, 12, 3_400_000)
    assert amounts(progress, 0.0, show.seconds) == "3/12 files, 3.4 MB of 20.0 MB"
    assert (
        amounts(progress, 1.1e6, show.seconds)
        == "3/12 files, 3.4 MB of 20.0 MB, 1.1 MB/s, 15.1 s left"
    )
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    meter, silent = (ProgressLine(quiet, in_pipes=True) for quiet in (False, True))
    for _ in range(250):
        now += 0.1
        progress = progress._replace(moved=progress.moved + 200_000)
        for each in (meter, silent):
            each.report(progress)
    said = capsys.readouterr()
    assert said.err.splitlines() == ["3/12 files, 3.4 MB of 20.0 MB, 2.0 MB/s, 8.3 s left"] * 2
    assert said.out == ""


@slow
def test_the_server_gives_nothing_but_the_record(bed):
    (bed.outputs / "link").symlink_to(bed.home / "token")
    os.mkfifo(bed.outputs / "fifo")
    with Client(bed.url, bed.token) as client:
        for path in ("../../token", "/etc/passwd", "artifacts/outputs/link", "no", "artifacts"):
            for file in (
                routes.job_file.at(bed.name, path),
                routes.job_checksum.at(bed.name, path, size=9),
            ):
                with pytest.raises(NotFound):
                    client.call(*file)
            asked = json.dumps([{"path": path, "size": 9}]).encode()
            body = client.call(*routes.job_bundle.at(bed.name), asked).body
            assert body == b'{"size": null}\n'
        asked = json.dumps([{"path": "no", "size": 9 << 20}]).encode()
        with pytest.raises(UsageError, match="a bundle is limited"):
            client.call(*routes.job_bundle.at(bed.name), asked)
    told = bed.told()
    assert not {"link", "fifo"} & {Path(each["path"]).name for each in told["files"]}


@slow
def test_links_that_are_left_out_are_told(bed):
    for name in ("best", "do\twn", "last", "new"):
        (bed.outputs / name).symlink_to("nowhere")
    (bed.outputs / "up").symlink_to(bed.home)
    links = [f"artifacts/outputs/{name}" for name in ("best", "do\twn", "last", "new", "up")]
    assert bed.told()["links"] == links
    listed = bed.allranks("job", "files", bed.name).stderr
    assert "left out, because they are links that lead to no file of the job" in listed
    refused = bed.download("--path", "outputs/up")
    assert "only a link that leads to no file of it" in refused.stderr, refused.stderr
    said = bed.download().stderr.splitlines()
    named = ", ".join(links[:3]).replace("\t", "?")
    assert (
        said[-1]
        == f"note: 5 links to no file of it, or special files, were left out: {named} and 2 more"
    )


@slow
def test_a_link_to_a_file_of_the_job_comes_along(bed, tmp_path):
    (bed.outputs / "s2.pt").write_text("second")
    (bed.outputs / "latest").symlink_to("s2.pt")
    (bed.outputs / "again").symlink_to(bed.outputs / "latest")
    listed = bed.allranks("job", "files", bed.name).stdout
    assert "outputs/latest -> outputs/s2.pt" in listed
    told = bed.told()
    assert told["links"] == []
    for name in ("latest", "again"):
        assert os.readlink(bed.got / name) == "s2.pt"
    # Without the file that it leads to it is that file.
    alone = tmp_path / "alone"
    assert bed.download("--path", "outputs/latest", "-p", str(alone)).returncode == 0
    latest = alone / "artifacts" / "outputs" / "latest"
    assert (latest.is_symlink(), latest.read_text()) == (False, "second")


@slow
def test_empty_folders_and_holes_stay(bed):
    made = bed.folder / "made"
    for root in (bed.outputs, made):
        (root / "empty" / "deep").mkdir(parents=True)
        with open(root / "holes", "wb") as file:
            file.truncate(30 * MB)
            file.seek(9 * MB)
            file.write(b"x" * 5000)
    os.mkfifo(bed.outputs / "pipe")
    assert bed.told()["links"] == ["artifacts/outputs/pipe"]
    assert bed.allranks("data", "upload", "made", "--name", "d").returncode == 0
    assert bed.allranks("data", "download", "d", "-p", "got").returncode == 0
    for root in (bed.got, bed.folder / "got" / "d"):
        assert (root / "empty" / "deep").is_dir()
        assert (root / "holes").read_bytes() == (made / "holes").read_bytes()
        assert (root / "holes").stat().st_blocks * 512 < 2 * MB
    assert not (bed.folder / "got" / "artifacts" / "logs").exists()


@slow
def test_folders_keep_their_times_and_links_to_them_come_along(bed):
    """Of a job, of data and of a state: scripts look for the newest checkpoint by time."""
    made, steps = bed.folder / "made", {"step_250": 2, "step_50": 3, "step_150": 1}
    for root in (bed.outputs, made):
        for name, time in steps.items():
            (root / name / "empty").mkdir(parents=True)
            (root / name / "model.pt").write_text(name)
            os.utime(root / name, ns=(time * 10**9, time * 10**9))
        (root / "latest").symlink_to("step_50")
        (root / "best").symlink_to("latest")
        (root / "last.pt").symlink_to("latest/model.pt")
    (bed.outputs / "absolute").symlink_to(bed.outputs / "step_250")
    (bed.outputs / "away").symlink_to("../../..")
    (bed.outputs / "astray").symlink_to("away/x")
    left_out = [f"artifacts/outputs/{name}" for name in ("astray", "away")]
    assert bed.told()["links"] == left_out
    assert bed.allranks("data", "upload", "made", "--name", "d").returncode == 0
    assert bed.allranks("data", "download", "d", "-p", "got").returncode == 0
    model = ("model", "create", "m", "--path", "made")
    of_job = ("model", "create", "j", "--job", bed.name, "--path", "outputs")
    assert bed.allranks(*model).returncode == 0
    assert bed.allranks("model", "download", "m", "-p", "got").returncode == 0
    assert bed.allranks(*of_job).returncode != 0  # a link of it leads out
    (bed.outputs / "away").unlink()
    (bed.outputs / "astray").unlink()
    assert bed.allranks(*of_job).returncode == 0
    assert bed.allranks("model", "download", "j", "-p", "got").returncode == 0
    state = 'cd "$ALLRANKS_STATE_DIR"; cp -a "$0/." .; sleep 1.5'
    done = bed.allranks("run", "--name", "s", "--state", "s", "--", "bash", "-c", state, str(made))
    assert done.returncode == 0, done.stderr
    assert bed.allranks("state", "download", "s", "-p", "got").returncode == 0
    data, states = bed.folder / "got/d", bed.folder / "got/s/shared"
    models = [bed.folder / "got" / name for name in "mj"]
    for root in (bed.got, data, states, *models):
        assert os.readlink(root / "latest") == "step_50"
        assert os.readlink(root / "best") == "latest"
        assert (root / "last.pt").is_symlink()
        assert (root / "last.pt").read_text() == "step_50"
    for root in (bed.got, data, states):
        assert (root / "step_150/empty").is_dir()
    for root in (bed.got, states):
        times = {name: (root / name).stat().st_mtime_ns // 10**9 for name in steps}
        assert times == steps
    assert os.readlink(bed.got / "absolute") == "step_250"
