"""`-m`, `allranks job metrics` and `allranks top`: numbers out of what real ranks print."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from allranks.core.amounts import size_text
from tests.support import CLI, Allranks, command_line, environment, kill_server, until

# Real servers and processes, about a second a test.
pytestmark = pytest.mark.slow

TRAIN = """\
import os, sys
rank = int(os.environ.get("RANK", 0))
for step in range(5):
    print(f"step {step * 10} loss {1 / (step + 1)} acc {step}", flush=True)
print("loss nan", "loss inf", sep="\\n")
if "fail" in sys.argv:
    sys.exit(3)
"""


@pytest.fixture
def train(code: Path) -> list[str]:
    (code / "train.py").write_text(TRAIN)
    return ["--", "python", "train.py"]


def metrics(allranks: Allranks, name: str, *words: str):
    done = allranks("job", "metrics", name, "--json", *words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def ran(allranks: Allranks, *words: object) -> str:
    done = allranks("run", "--json", *words)
    return json.loads(done.stdout)["name"]


def test_numbers_of_the_output_are_points(shared, train):
    step = r"loss=(?:step (?P<step>\d+) )?loss (?P<value>\S+)"
    name = ran(shared, "-m", step, "-m", r"acc=acc (\S+)", *train)
    found = metrics(shared, name)
    assert [point["value"] for point in found["acc"]] == [0, 1, 2, 3, 4]
    assert [point["step"] for point in found["acc"]] == [0, 1, 2, 3, 4]
    assert [point["step"] for point in found["loss"]] == [0, 10, 20, 30, 40, 41, 42]
    assert [point["value"] for point in found["loss"]][4:] == [0.2, "NaN", "Infinity"]
    ended = json.loads(shared("job", "show", name, "--json").stdout)
    assert ended["metrics"] == {"acc": 4, "loss": "Infinity"}
    stamps = [point["timestamp"] for point in found["acc"]]
    assert all(isinstance(each, int) for each in stamps)
    assert stamps == sorted(stamps)
    assert metrics(shared, name, "--name", "acc") == {"acc": found["acc"]}


def test_what_a_person_sees(shared, train):
    name = ran(shared, "-m", r"loss=loss (\S+)", "-m", r"acc=acc (\S+)", *train)
    done = shared("job", "metrics", name)
    assert "MIN and MAX leave out what is nan or infinite: loss" in done.stderr
    table = done.stdout.splitlines()
    assert table[0].split() == ["METRIC", "LAST", "STEP", "MIN", "MAX", "POINTS"]
    assert table[1].split() == ["acc", "4", "4", "0", "4", "5", "▁▃▅▆█"]
    assert table[2].split()[:6] == ["loss", "Infinity", "6", "0.2", "1", "7"]
    points = shared("job", "metrics", name, "--name", "acc").stdout.splitlines()
    assert points[0].split() == ["STEP", "TIME", "VALUE"]
    assert [row.split()[2] for row in points[1:]] == ["0", "1", "2", "3", "4"]
    shown = shared("job", "show", name).stdout
    assert "metric acc  4         ▁▃▅▆█" in shown  # below it: Infinity


def test_every_rank_may_tell(shared, train):
    words = ("-p", 3, "-d", "pytorch", "-m", r"acc=acc (\S+)", "--metric-rank")
    name = ran(shared, *words, "all", *train)
    every = metrics(shared, name)
    assert {name: len(points) for name, points in every.items()} == {
        f"acc/rank_{rank}": 5 for rank in range(3)
    }
    assert list(metrics(shared, ran(shared, *words, "2", *train))) == ["acc"]
    one = shared("job", "metrics", name, "--follow", "--json", "--name", "acc/rank_1").stdout
    assert [json.loads(line)["metric"] for line in one.splitlines()] == ["acc/rank_1"] * 5
    every = shared("job", "metrics", name, "--follow", "--json", "--name", "acc").stdout
    assert len(every.splitlines()) == 15


def test_attempts_follow_one_another(shared, train):
    name = ran(shared, "--max-attempts", 2, "-m", r"acc=acc (\S+)", *train, "fail")
    found = metrics(shared, name)["acc"]
    assert [point["value"] for point in found] == [0, 1, 2, 3, 4] * 2
    assert [point["attempt"] for point in found] == [1] * 5 + [2] * 5
    second = metrics(shared, name, "--attempt", "2")["acc"]
    assert second == found[5:]
    words = ("job", "metrics", name, "--follow", "--json")
    followed = shared(*words, "--attempt", 2).stdout.splitlines()
    assert [json.loads(line) for line in followed] == [{"metric": "acc", **p} for p in second]
    none = shared("job", "metrics", name, "--follow", "--attempt", 9)
    assert (none.stdout, none.returncode) == ("", 2)
    assert "has no attempt 9\n\nhint: its attempts are 1 to 2" in none.stderr
    none = shared("job", "metrics", name, "--follow", "--name", "nope")
    assert (none.stdout, none.returncode) == ("", 2)
    assert "has no metric 'nope'" in none.stderr
    assert "acc (attempt 2)" in shared("job", "metrics", name).stdout


def test_what_did_not_work_is_told_at_the_end(shared, train):
    name = ran(shared, "-m", "never=xyz (.)", "-m", r"odd=(step) \d+", *train)
    events = json.loads(shared("job", "events", name, "--json").stdout)
    notes = [each["data"]["message"] for each in events if each["kind"] == "note"]
    assert notes == [
        "the metric 'never' matched no line that rank 0 printed",
        "the metric 'odd' found 'step' where a number should be",
    ]
    one = ran(shared, "-m", "never=xyz (.)", *train)
    assert f"no number was found in the output of {one}" in shared("job", "metrics", one).stderr
    assert "has no attempt 9" in shared("job", "metrics", one, "--attempt", 9).stderr
    said = shared("run", "-m", "never=xyz (.)", *train).stderr
    assert "note: the metric 'never' matched no line that rank 0 printed" in said


def test_a_metric_that_another_node_has_is_not_missed(shared):
    here = 'test "$NODE_RANK" = 1 && echo loss 1 - acc 2; true'
    words = ("--metric-rank", "all", "-m", r"loss=loss (\d)", "-m", "never=xyz (.)", "-m", "keras")
    said = shared("run", "-n", 2, *words, "--", "bash", "-c", here).stderr
    assert sorted(line for line in said.splitlines() if "matched" in line) == [
        "note: the metric 'keras' matched no line that any rank printed",
        "note: the metric 'never' matched no line that any rank printed",
    ]


def test_a_job_without_metrics(shared):
    name = ran(shared, "--", "true")
    assert metrics(shared, name) == {}
    done = shared("job", "metrics", name)
    assert (done.returncode, done.stdout) == (0, "")
    assert "has no metrics" in done.stderr
    done = shared("job", "metrics", name, "--name", "loss")
    assert done.returncode == 2
    assert "has no metric 'loss'" in done.stderr


def test_lines_that_are_no_points_are_counted_at_the_end_and_later(shared):
    lines = """junk '{"loss": 1.0}' more"""
    write = f'for line in {lines}; do echo "$line" >>"$ALLRANKS_METRICS_FILE"; done'
    done = shared("run", "--name", "no-points", "-n", 2, "--", "bash", "-c", write)
    note = "line 1 and 2 more of ALLRANKS_METRICS_FILE recorded nothing: 'junk'; a line is"
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(note) == 1, "that of the other node is the same"
    assert shared("job", "show", "no-points").stdout.count(note) == 1
    assert f"no-points has no metrics: {note}" in shared("job", "metrics", "no-points").stderr


def test_a_name_may_be_anything_that_prints(shared, train):
    name = ran(shared, "-m", r"Acc@1 (top/π)=acc (\S+)", *train)
    assert len(metrics(shared, name)["Acc@1 (top/π)"]) == 5


def test_an_exploding_pattern_does_not_hold_the_job_up(shared, code):
    lines = "print('\\n'.join(['a' * 60 + 'b'] * 20 + ['loss 1']))"
    words = ("-m", "evil=^(a+)+$", "-m", r"loss=loss (\d)", "--", "python", "-c", lines)
    done = shared("run", "--json", *words)
    assert done.returncode == 0
    assert "the metric 'evil' was turned off" in done.stderr
    assert [each["value"] for each in metrics(shared, json.loads(done.stdout)["name"])["loss"]] == [
        1
    ]


def test_followed_they_come_as_they_are_printed(home, code, train):
    (code / "go").touch()
    slow = (
        "import os, time\nfor n in range(3):\n    print('acc', n, flush=True)\n"
        "while not os.path.exists('../go2'): time.sleep(0.05)\nprint('acc', 3)\n"
    )
    (code / "slow.py").write_text(slow)
    allranks = command_line(home, code)
    words = ("--in-place", "-m", r"acc=acc (\d)", "--name", "j", "--detach")
    (code / "slow.py").write_text(slow.replace("../go2", "go2"))
    assert allranks("run", *words, "--", "python", "slow.py").returncode == 0
    argv = [sys.executable, "-c", CLI, "job", "metrics", "j", "--follow", "--json"]
    with subprocess.Popen(
        argv, env=environment(home), stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL
    ) as follower:
        assert follower.stdout is not None
        first = [json.loads(follower.stdout.readline()) for _ in range(3)]
        assert [each["value"] for each in first] == [0, 1, 2]
        assert first[0]["metric"] == "acc"
        top = json.loads(allranks("top", "--json").stdout)
        assert [(each["name"], each["metrics"]) for each in top] == [("j", {"acc": 2})]
        (code / "go2").touch()
        assert json.loads(follower.stdout.readline())["value"] == 3
        assert follower.wait(timeout=120) == 0


def test_a_server_that_is_killed_loses_and_doubles_nothing(home, code):
    (code / "many.py").write_text(
        "import itertools, os, time\nfor n in itertools.count():\n"
        "    print('n', n, flush=True)\n    time.sleep(0.002)\n"
        "    if os.path.exists('enough'): break\n"
    )
    allranks = command_line(home, code)
    words = ("-m", r"n=n (\d+)", "--in-place", "--name", "j", "--detach")
    assert allranks("run", *words, "--", "python", "many.py").returncode == 0
    for _ in range(3):
        before = len(metrics(allranks, "j").get("n", []))
        until(lambda before=before: len(metrics(allranks, "j").get("n", [])) > before)
        os.kill(json.loads((home / "server.json").read_text())["pid"], signal.SIGKILL)
    (code / "enough").touch()
    assert allranks("job", "wait", "j").returncode == 0
    printed = allranks("job", "logs", "j").stdout.splitlines()
    found = metrics(allranks, "j")["n"]
    assert [f"n {point['value']:.0f}" for point in found] == printed
    assert [point["step"] for point in found] == list(range(len(printed)))


def test_a_server_that_is_killed_costs_no_point_of_what_is_used(home, code, tmp_path):
    allranks = command_line(home, code)
    script = "import os, time\nwhile not os.path.exists('enough'): time.sleep(0.05)\n"
    (code / "waits.py").write_text(script)
    words = ("--in-place", "--name", "j", "--detach", "--", "python", "waits.py")
    assert allranks("run", *words).returncode == 0
    written = home / "nodes" / "j.1" / "0" / "attempt-1" / "resources.jsonl"
    until(written.exists)
    # The agent removes its folder when the server has everything.
    os.link(written, tmp_path / "written")

    def moments():
        return [json.loads(each)["at"] for each in (tmp_path / "written").read_text().splitlines()]

    until(lambda: len(moments()) >= 3)
    kill_server(home)
    count = len(moments())
    until(lambda: len(moments()) > count)
    (code / "enough").touch()
    assert allranks("job", "wait", "j").returncode == 0
    server = json.loads((home / "server.json").read_text())
    token = (home / "token").read_text().strip()
    headers = {"authorization": f"Bearer {token}"}
    told = httpx.get(f"{server['url']}/api/v1/jobs/j/resources", headers=headers).json()["series"]
    (found,) = [each["points"] for each in told if each["name"] == "node_memory"]
    assert [at for at, _ in found] == moments()


def test_what_is_used_is_shown_while_it_runs_and_after(home, code):
    allranks = command_line(home, code)
    (code / "work.py").write_text(
        "import os, time\nheld = bytearray(200 << 20)\nwhile not os.path.exists('enough'): pass\n"
        "del held\nwhile not os.path.exists('done'): time.sleep(0.1)\n"
    )
    words = ("--in-place", "-p", 2, "--name", "j", "--detach", "--", "python", "work.py")
    assert allranks("run", *words).returncode == 0

    def load():
        found = json.loads(allranks("top", "--json").stdout)[0]["load"]
        return found[0] if found and len(found[0]["ranks"]) == 2 else None

    until(lambda: (now := load()) and all(each["memory"] > 200 << 20 for each in now["ranks"]))
    told = load()
    assert told["now"]
    assert told["memory_total"] > told["memory"]
    assert told["memory"] < 800 << 20, "of the job, whatever else this machine holds"
    assert told["node_load"]["memory_total"] == told["memory_total"]
    assert {"cpu", "memory", "disk_read", "disk_write", "net_in"} <= told["node_load"].keys()
    assert told["node_load"]["cpu"] > 0
    assert told["memory"] > 400 << 20
    assert any(each["cpu"] > 5 for each in told["ranks"])
    screen = allranks("top").stdout.splitlines()
    assert screen[0].split()[:4] == ["JOB", "STATUS", "NODE", "AGE"]
    assert screen[1].split()[:3] == ["j", "Running", "0"]
    (code / "enough").touch()
    until(lambda: (load() or told)["memory"] < 200 << 20)
    shown = allranks("job", "show", "j").stdout.splitlines()
    (own,) = [n for n, line in enumerate(shown) if line.startswith("node 0      cpu ")]
    assert shown[own].endswith(": this job")
    assert shown[own + 1].endswith(": all that runs there")
    assert not json.loads(allranks("job", "show", "j", "--json").stdout)["peaks"]
    (code / "done").touch()
    assert allranks("job", "wait", "j").returncode == 0
    ended = json.loads(allranks("job", "show", "j", "--json").stdout)
    assert not ended["load"][0]["now"]
    (peak,) = ended["peaks"]
    assert ended["load"][0]["memory"] < 200 << 20 < 400 << 20 < peak["memory"] < 800 << 20
    assert all(each["memory"] > 200 << 20 for each in peak["ranks"])
    shown = allranks("job", "show", "j").stdout.splitlines()
    (own,) = [n for n, line in enumerate(shown) if line.startswith("node 0      cpu ")]
    assert f"memory {size_text(peak['memory'])} of " in shown[own]
    assert shown[own].endswith(": this job, at most")
    assert shown[own + 1].endswith(": all that runs there, at most")
    assert allranks("top").stdout.splitlines()[1:] == []


def test_a_name_with_brackets_ends_where_they_are_closed() -> None:
    from allranks.cli.submit.run import _metric

    assert _metric("f1@[IoU=0.5]=f1: (.*)") == ("f1@[IoU=0.5]", "f1: (.*)")
    assert _metric("loss=loss=([0-9.]+)") == ("loss", "loss=([0-9.]+)")
    assert _metric("a[=b") == ("a[", "b")
