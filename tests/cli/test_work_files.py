"""What a script saves in its working folder is kept, told, listed and fetched."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.support import Allranks, until

# Real servers and processes, about half a second a test.
pytestmark = pytest.mark.slow


def files(allranks: Allranks, name: str) -> dict[str, tuple[int, int | None]]:
    done = allranks("job", "files", name, "--json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return {
        each["path"]: (each["size"], each["node"])
        for each in found
        if not each["path"].startswith("user_logs/")
    }


def test_a_model_saved_in_the_working_folder_is_there_afterwards(shared, code):
    (code / "train.py").write_text("open('model.pt', 'w').write('weights')")
    done = shared("run", "--name", "work-one", "--", "python", "train.py")
    assert "working folder: 1 file, 7 bytes kept in /" in done.stderr
    assert files(shared, "work-one") == {"work/model.pt": (7, 0)}
    got = shared("job", "download", "work-one", "-p", "got")
    assert "got/artifacts/work/model.pt" in got.stdout
    assert (code / "got/artifacts/work/model.pt").read_text() == "weights"
    table = shared("job", "files", "work-one")
    assert "work/model.pt" in table.stdout
    assert "PATH" in table.stdout
    assert "--path PATH" in table.stderr


def test_each_node_has_a_folder(shared):
    script = 'echo "$RANK" > "rank-$RANK"'
    done = shared("run", "--name", "work-nodes", "-n", 2, "-p", 2, "--", "bash", "-c", script)
    assert "working folder: 4 files, 8 bytes kept" in done.stderr
    assert files(shared, "work-nodes") == {
        f"work/node-{rank // 2}/rank-{rank}": (2, rank // 2) for rank in range(4)
    }


def test_a_job_that_writes_nothing_says_nothing(shared):
    done = shared("run", "--name", "work-none", "--", "true")
    assert "working folder" not in done.stderr
    assert files(shared, "work-none") == {}


def test_above_the_limit_files_are_named_with_the_flag_that_keeps_them(shared, code):
    script = "head -c 300000 /dev/zero > large; echo x > small"
    words = ("--", "bash", "-c", script)
    done = shared("run", "--name", "work-large", "--keep-work", "100k", *words)
    assert "not kept: 1 file (300.0 kB) of the working folder, over the limit: large" in done.stderr
    assert "--keep-work 1g " in done.stderr
    assert files(shared, "work-large").keys() == {"work/small"}

    shared("run", "--name", "work-all", *words, env={"ALLRANKS_KEEP_WORK": "100k"})
    assert files(shared, "work-all").keys() == {"work/small"}
    shared("run", "--name", "work-no", "--keep-work", "none", *words)
    assert files(shared, "work-no") == {}
    (code / "job.yml").write_text("command: echo x > y\nkeep_work: some\n")
    wrong = shared("job", "create", "-f", "job.yml")
    assert wrong.returncode == 2
    assert "keep_work" in wrong.stderr
    assert "20g" in wrong.stderr


def test_of_a_job_that_fails_and_is_run_again_each_attempt_keeps_its_own(shared):
    script = 'echo "$ALLRANKS_ATTEMPT" > model.pt; exit 3'
    done = shared("run", "--name", "work-fails", "--max-attempts", 2, "--", "bash", "-c", script)
    assert done.returncode == 3
    assert "working folder: 1 file, 2 bytes kept" in done.stderr
    found = files(shared, "work-fails")
    found.pop("attempts/1/user_logs/std_log.txt", None)
    # The working folder goes on: of earlier attempts there are names and sizes.
    assert found == {"attempts/1/work/node-0.txt": (26, 0), "work/model.pt": (2, 0)}
    shared("job", "download", "work-fails", "--all", "-p", "got")


def test_a_canceled_job_keeps_its_files(shared):
    script = "echo x > model.pt; echo ready; sleep 600"
    shared("run", "--name", "work-canceled", "--detach", "--", "bash", "-c", script)
    until(lambda: "ready" in shared("job", "logs", "work-canceled").stdout)
    shared("job", "cancel", "work-canceled")
    shared("job", "wait", "work-canceled")
    assert files(shared, "work-canceled").keys() == {"work/model.pt"}


def test_a_job_that_runs_in_place_keeps_its_files_where_they_are(shared, code):
    done = shared("run", "--name", "work-place", "--in-place", "--", "touch", "here")
    assert "working folder" not in done.stderr
    assert files(shared, "work-place") == {}
    assert (code / "here").exists()


def test_hostile_names_do_not_reach_the_screen(shared, code):
    (code / "write.py").write_text(
        "import os\n"
        "for head in (b'kept', b'.env'):\n"
        "    open(head + b'\\xff\\n\\x1b[31m', 'w').close()\n"
    )
    done = shared("run", "--name", "work-hostile", "--", "python", "write.py")
    assert "not kept: 1 file (0 bytes)" in done.stderr
    assert "\x1b" not in done.stderr
    (kept,) = files(shared, "work-hostile")
    assert os.fsencode(kept) == b"work/kept\xff\n\x1b[31m"
    assert "\x1b" not in shared("job", "files", "work-hostile").stdout
    got = shared("job", "download", "work-hostile", "--path", "work", "-p", "got", text=False)
    assert got.returncode == 0, got.stderr
    assert os.listdir(os.fsencode(code / "got/artifacts/work")) == [b"kept\xff\n\x1b[31m"]


def test_a_download_of_what_was_not_kept_fails_and_says_why(shared, code):
    script = "head -c 300000 /dev/zero > large"
    words = ("--keep-work", "100k", "-o", "model", "--", "bash", "-c", script)
    assert shared("run", "--name", "work-lost", *words).returncode == 0
    for which, message in (
        ((), "work-lost has no files"),
        (("--path", "work/large"), "work-lost has no file 'work/large'"),
        (("--output-name", "model"), "the output model of work-lost has no files"),
    ):
        got = shared("job", "download", "work-lost", "-p", "lost", *which)
        assert (got.returncode, got.stdout) == (2, "")
        assert f"error: {message}\n" in got.stderr
        assert "over the limit: large (300.0 kB); --keep-work 1g" in got.stderr
        assert "allranks job files work-lost" in got.stderr


def test_a_job_that_failed_says_where_its_outputs_are(shared: Allranks, code: Path) -> None:
    script = 'echo x > outputs/m.pt; echo x > "$AZURE_ML_OUTPUT_best/a"; exit 3'
    done = shared("run", "-o", "best", "-o", "none", "--", "bash", "-c", script)
    assert "\noutputs: /" in done.stderr
    assert "\noutput best: /" in done.stderr
    assert "output none" not in done.stderr
