"""History on the command line: lists, comparison, tags, archive, deletion, short names."""

import contextlib
import json
import os
import pty
import shlex
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from allranks.errors import UsageError
from allranks.statuses import JobStatus
from tests.support import CLI, answer, command_line, environment, leave_nothing

# Real servers and processes, about half a second a test.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A home with four jobs that have ended, and its command line."""
    home, folder = tmp_path_factory.mktemp("h'istory") / "ho me", tmp_path_factory.mktemp("c o'de")
    allranks = command_line(home, folder)
    loss = ["-m", r"loss=loss: ([0-9.]+)"]
    for name, lr, value, team in (("run_a", 0.1, 0.9, "vision"), ("run_b", 0.2, 0.3, "text")):
        (folder / "train.py").write_text(f"print('loss: {value}') # {name}")
        more = [
            "--tag",
            f"team={team}",
            "--set",
            f"inputs.lr={lr}",
            "--env",
            "LR=${{inputs.lr}}",
            "--display-name",
            f"The {name}",
        ]
        done = allranks("run", "-q", "--name", name, *loss, *more, "--", "python", "train.py")
        assert done.returncode == 0, done.stderr
    assert allranks("run", "-q", "--name", "other", "--", "false").returncode == 1
    assert allranks("run", "-q", "--name", "run_a2", "--", "true").returncode == 0
    yield allranks
    leave_nothing(home)


def names(done):
    assert done.returncode == 0, done.stderr
    return [line.split()[0] for line in done.stdout.splitlines()[1:]]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([], ["run_a2", "other", "run_b", "run_a"]),
        (["--tag", "team"], ["run_b", "run_a"]),
        (["--tag", "team=vision"], ["run_a"]),
        (["--name", "run_a*"], ["run_a2", "run_a"]),
        (["--name", "the RUN"], ["run_b", "run_a"]),
        (["--metric", "loss<0.5"], ["run_b"]),
        (["--sort", "loss", "--tag", "team"], ["run_b", "run_a"]),
        (["--sort", "-loss", "--limit", "1"], ["run_a"]),
        (["--sort=-best.loss", "--limit", "1"], ["run_a"]),
        (["--sort=-inputs.lr", "--tag", "team"], ["run_b", "run_a"]),
        (["--sort", "lr", "--limit", "3"], ["run_a", "run_b", "other"]),
        (["--mine", "--since-visit", "--limit", "1"], ["run_a2"]),
        (["--status", "failed", "--status", "running"], ["other"]),
        (["--sort", "age"], ["run_a2", "other", "run_b", "run_a"]),
        (["--sort=-exit_code", "--limit", "1"], ["other"]),
        (["--sort=created", "--status", "Completed"], ["run_a", "run_b", "run_a2"]),
        (["--since", "1h", "--until", "2999-01-01", "--limit", "1"], ["run_a2"]),
    ],
)
def test_list(house, words, found):
    assert names(house("job", "list", *words)) == found


def test_nothing_is_found(house):
    for words in (["--since", "2999-01-01"], ["--until", "2000-01-01T00:00"], ["--archived"]):
        done = house("job", "list", *words)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "no jobs match\n")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--since", "soon"], "'soon' is not a time"),
        (["--since", "nand"], "'nand' is not a time"),
        (["--until", "1969-01-01"], "is not a time"),
        (["--metric", "loss<<3"], "'loss<<3' is not a condition"),
        (["--metric", "loss"], "'loss' is not a condition"),
        (["--sort", "-"], "'-' is not a sort key"),
        (["--sort", "los"], "no job in this list has a metric, parameter or input 'los'"),
        (["--columns", "name,,x"], "a column has no name"),
        (["--tag", "=x"], "is not a tag"),
        (["--all", "--archived"], "not allowed with"),
        (["--mine", "--by", "x"], "not allowed with"),
    ],
)
def test_list_refuses(house, words, sentence):
    done = house("job", "list", *words)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "hint: " in done.stderr


def test_columns_and_json(house):
    columns = "name,status,loss,inputs.lr,tags.team,display_name"
    done = house("job", "list", "--columns", columns, "--tag", "team")
    assert done.stdout.splitlines()[1].split() == [
        "run_b",
        "Completed",
        "0.3",
        "0.2",
        "text",
        "The",
        "run_b",
    ]
    (row,) = json.loads(house("job", "list", "--tag", "team=text", "--json").stdout)
    assert row["metrics"] == {"loss": 0.3}
    by_input = house("job", "list", "--columns", "name,lr", "--tag", "team=text")
    assert (by_input.stdout.splitlines()[1].split(), by_input.stderr) == (["run_b", "0.2"], "")
    by_loss = house("job", "list", "--sort", "loss").stdout.splitlines()
    assert "LOSS" in by_loss[0].split()
    by_best = house("job", "list", "--sort=-best.loss", "--tag", "team=text").stdout.splitlines()
    assert (by_best[0].split()[-1], by_best[1].split()[-1]) == ("BEST.LOSS", "0.3")
    assert len(house("job", "list", "--by", row["created_by"], "--json").stdout) > 10
    nobody = house("job", "list", "--by", "nobody").stderr
    assert nobody == f"no jobs match\n\nhint: the newest jobs are of {row['created_by']}\n"
    assert house("run", "-q", "--name", "flagged", "--", "true", "--lr", "0.25").returncode == 0
    flags = house("job", "list", "--columns", "name,lr", "--name", "flagged").stdout
    assert flags.splitlines()[1].split() == ["flagged", "0.25"]
    assert house("job", "delete", "flagged", "--yes").returncode == 0
    assert row["inputs"] == {"lr": 0.2}
    assert (row["tags"], row["display_name"]) == ({"team": "text"}, "The run_b")
    shown = house("job", "list").stdout.splitlines()
    assert "DISPLAY NAME" in shown[0]
    assert shown[3].endswith("team=text")
    told = house("job", "show", "run_b").stdout
    assert "display name The run_b" in told
    assert "team=text" in told


def test_short_names(house):
    def status(name):
        done = house("job", "show", name, "--json")
        return json.loads(done.stdout).get("name") or json.loads(done.stdout)["hint"]

    assert status("oth") == "other"
    assert status("run_a") == "run_a", "an exact name wins"
    assert status("-") == status("@last") == "run_a2"
    assert "run_b" in status("run_")
    assert "did you mean `other`?" in status("othre")
    for words in (
        ["logs", "run_b"],
        ["events", "-"],
        ["wait", "oth"],
        ["metrics", "run_b", "--name", "loss"],
        ["stream", "-"],
        ["explain", "oth"],
        ["cancel", "other"],
        ["download", "run_b", "-p", "d"],
    ):
        done = house("job", *words)
        assert "error: there is no" not in done.stderr, words
        assert "Traceback" not in done.stderr
    assert "other already ended" in house("job", "cancel", "other").stderr
    assert house("report", "run_b").returncode == 0
    assert house("report", "goodput", "oth", "-").returncode == 0


def test_compare(house):
    told = json.loads(house("job", "compare", "run_a", "run_b", "--json").stdout)
    found = {(each["section"], each["name"]): each["values"] for each in told["differences"]}
    assert found["parameters", "lr"] == ["0.1", "0.2"]
    assert found["metrics", "loss"] == [0.9, 0.3]
    assert found["code", "file train.py"] == ["as in the first job", "changed"]
    shown = house("job", "compare", "run_a", "run_b").stdout
    assert "PARAMETERS" in shown
    assert "\n  file train.py" in shown
    lines = ["@@ -1 +1 @@", "-print('loss: 0.9') # run_a", "+print('loss: 0.3') # run_b"]
    assert "\n".join(["run_a → run_b: train.py changed", *lines]) in shown
    (way,) = told["lines"]
    (code,) = way["parts"]
    assert (code["name"], code["what"], code["lines"]) == ("train.py", "changed", lines)
    done = house("job", "compare", "run_a")
    assert (done.returncode, "two jobs" in done.stderr) == (2, True)


def test_metrics_side_by_side(house):
    done = house("job", "metrics", "run_a", "run_b", "other")
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["METRIC", "run_a", "run_b", "other"],
        ["loss", "0.9", "0.3", "-"],
    ]
    steps = house("job", "metrics", "run_a", "run_b", "--name", "loss").stdout.splitlines()
    assert [line.split() for line in steps] == [["STEP", "run_a", "run_b"], ["0", "0.9", "0.3"]]
    told = json.loads(house("job", "metrics", "run_a", "run_b", "--json").stdout)
    assert told["run_b"]["loss"][0]["value"] == 0.3
    assert house("job", "metrics", "run_a", "run_b", "--follow").returncode == 2


def test_tag_and_archive(house):
    assert "hostile=a=b" in house("job", "tag", "run_b", "hostile=a=b").stderr
    assert names(house("job", "list", "--tag", "hostile=a=b")) == ["run_b"]
    assert house("job", "tag", "run_b", "--remove", "hostile").returncode == 0
    assert house("job", "list", "--tag", "hostile").stdout == ""
    for wrong in ([], ["word"], ["=x"]):
        assert house("job", "tag", "run_b", *wrong).returncode == 2
    assert house("job", "archive", "other", "run_b").returncode == 0
    assert names(house("job", "list")) == ["run_a2", "run_a"]
    assert names(house("job", "list", "--archived")) == ["other", "run_b"]
    assert len(names(house("job", "list", "--all"))) == 4
    assert "archived" in house("job", "show", "other").stdout
    assert house("job", "restore", "other", "run_b").returncode == 0
    assert len(names(house("job", "list"))) == 4


def on_a_terminal(home, folder, words, answer):
    """What a person sees who types the command and the answer."""
    leader, follower = pty.openpty()
    argv = [sys.executable, "-c", CLI, *words]
    with subprocess.Popen(
        argv, stdin=follower, stdout=follower, stderr=follower, env=environment(home), cwd=folder
    ) as process:
        os.close(follower)
        os.write(leader, answer.encode())
        said = b""
        with contextlib.suppress(OSError):  # a terminal that nobody has any more
            while piece := os.read(leader, 4096):
                said += piece
        code = process.wait(60)
    os.close(leader)
    return code, said.decode()


def test_jobs_that_use_an_asset(allranks, code):
    (code / "d.txt").write_text("1")
    assert allranks("data", "create", "digits", "--path", "d.txt").returncode == 0
    (code / "job.yml").write_text(
        "command: cat ${{inputs.d}}\ninputs: {d: {type: uri_file, path: 'azureml:digits@latest'}}\n"
    )
    for name in ("reads", "again"):
        made = allranks("job", "create", "-f", "job.yml", "--name", name, "--stream", "-q")
        assert made.returncode == 0, made.stderr
    assert allranks("run", "--name", "other", "-q", "--", "true").returncode == 0
    for used, expected in (("digits:1", ["again", "reads"]), ("digits:2", []), ("digit", [])):
        found = answer(allranks, "job", "list", "--uses", used)
        assert [each["name"] for each in found] == expected, used
    assert len(answer(allranks, "job", "list", "--uses", "azureml:digits")) == 2


def test_delete_asks_on_a_terminal(allranks, home, code):
    assert allranks("run", "-q", "--name", "first", "--", "true").returncode == 0
    code_, said = on_a_terminal(home, code, ["job", "delete", "first"], "n\n")
    assert (code_, "first" in said, "nothing is changed" in said) == (1, True, True)
    assert allranks("job", "show", "first").returncode == 0
    code_, said = on_a_terminal(home, code, ["job", "delete", "first"], "y\n")
    assert (code_, "deleted first" in said) == (0, True)
    assert not (home / "jobs" / "first").exists()
    assert "was deleted" in allranks("job", "show", "first").stderr
    again = allranks("run", "--name", "first", "--", "true")
    assert again.returncode == 2
    assert "names are not reused" in again.stderr


def test_jobs_that_read_one_another_are_deleted_together(allranks, home):
    made = allranks(
        "run",
        "-q",
        "--name",
        "one",
        "-o",
        "m",
        "--",
        "bash",
        "-c",
        'echo x > "$AZURE_ML_OUTPUT_m/x"',
    )
    assert made.returncode == 0, made.stderr
    reads = ["-i", "m=azureml://jobs/one/outputs/m", "--", "true"]
    assert allranks("run", "-q", "--name", "two", *reads).returncode == 0
    refused = allranks("job", "delete", "--yes", "one")
    assert refused.returncode == 2
    hint = refused.stderr.partition("hint: ")[2]
    command = hint.partition("allranks ")[2]
    done = allranks(*shlex.split(command), "--yes", "--json")
    assert done.returncode == 0, done.stderr
    assert [each["name"] for each in json.loads(done.stdout)] == ["two", "one"]
    assert list((home / "jobs").iterdir()) == []


def test_in_python(allranks, home, code, monkeypatch):
    from allranks import Client

    monkeypatch.chdir(code)
    assert allranks("run", "-q", "--name", "py", "--tag", "a=b", "--", "true").returncode == 0
    jobs = Client().jobs
    assert jobs.get("@last").name == jobs.get("p").name == "py"
    assert [job.name for job in jobs.list(name="p*", tags={"a": None})] == ["py"]
    assert jobs.tag("py", {"c": "d"}, remove=["a"]).tags == {"c": "d"}
    jobs.archive("py")
    assert jobs.list() == []
    assert jobs.restore("py").name == "py"
    jobs.delete("py")
    assert jobs.list(archived=None) == []
    with pytest.raises(UsageError, match="'Done' is not a status") as caught:
        jobs.list(status="Done")
    assert caught.value.hint == f"use one of {', '.join(JobStatus)}"
    assert jobs.list(status="completed") == []


def test_a_job_that_is_deleted_twice_is_no_other(allranks):
    assert allranks("run", "--name", "foo", "--", "true").returncode == 0
    assert allranks("job", "restart", "foo").stdout == "foo-r2\n"
    allranks("job", "wait", "foo-r2")
    assert allranks("job", "delete", "foo", "-y").returncode == 0
    again = allranks("job", "delete", "foo", "-y")
    assert again.returncode == 2
    assert "the job 'foo' was deleted" in again.stderr
    assert allranks("job", "show", "foo-r2").returncode == 0


def test_a_damaged_job_is_deleted(allranks, home):
    allranks("run", "--name", "bad", "--", "true")
    allranks("server", "stop")
    with closing(sqlite3.connect(home / "allranks.db")) as database, database:
        database.execute("UPDATE jobs SET plan = '{}' WHERE name = 'bad'")
    assert "Damaged" in allranks("job", "list").stdout
    done = allranks("job", "delete", "bad", "-y")
    assert done.returncode == 0, done.stderr
    assert "bad" not in allranks("job", "list").stdout


def test_a_word_that_is_no_column_is_said_to_be_none(house):
    done = house("job", "list", "--columns", "nam,status")
    assert "metric, parameter or input 'nam'; did you mean `name`?" in done.stderr
    assert house("job", "list", "--sort", "-duration", "--columns", "name,took").stderr == ""


def test_a_restart_that_is_followed(allranks):
    allranks("run", "--name", "again", "--", "bash", "-c", "exit 3")
    done = allranks("job", "restart", "again", "--stream")
    assert done.returncode == 3
    assert "again-r2: Failed" in done.stderr
