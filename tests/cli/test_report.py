"""`allranks report …`: the table, the page, the picture, and the commands on real jobs."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.cli.report import commands, picture
from allranks.cli.report.figure import figure
from allranks.cli.report.html_page import page
from allranks.core.charts import from_zero
from allranks.core.insights import scaling_text
from allranks.core.insights.job_facts import Facts
from allranks.core.insights.scaling import scaling
from allranks.errors import UsageError
from allranks.sdk.connection import find_server
from allranks.sdk.jobs.report_facts import observed

SIZES = ((1, 26614.0), (2, 15400.0), (4, 9900.0), (8, 6700.0))
HOSTILE = "a<script>&$x$'\"_^ b"


def run(name, nodes, seconds, **more):
    started, ended = 1900.0, 1900.0 + seconds
    fields = {"nodes": nodes, "ranks": nodes, "created_at": 1000.0, "started_at": started}
    fields |= {"ranks_ended_at": ended, "ended_at": ended + 200, "request": {"code": "x"}}
    return Facts(name, **{**fields, **more})


def several(**more):
    return scaling([run(HOSTILE if n == 4 else f"n{n}", n, t, **more) for n, t in SIZES])


UNEQUAL = scaling([run("a", 1, 100.0), run("b", 2, 90.0, request={"code": "y"})])
ONE = scaling([run("a", 3, 100.0)])
TWO = scaling([run("a", 1, 26614.0), run("b", 3, 11605.0)])


def written(found):
    return page(
        figure(found),
        scaling_text.head(found),
        scaling_text.table(found),
        scaling_text.sentences(found),
        scaling_text.doubts(found),
    )


def test_the_table_and_what_is_said_of_it():
    found = TWO
    assert scaling_text.head(found)[:3] == ("JOB", "NODES", "RANKS")
    assert scaling_text.table(found)[1][:2] == ("b", "3")
    assert scaling_text.table(found)[1][6:8] == ("2.29", "76.4%")
    said = "\n".join(scaling_text.sentences(found))
    assert "two sizes always lie on such a curve" in said
    assert "One node more than 3 would save 31 min 16 s of the ranks' time." in said
    assert "95%" not in said
    assert "95%" in "\n".join(scaling_text.sentences(several()))


def test_what_cannot_be_compared_is_not():
    assert scaling_text.table(UNEQUAL)[1][6:9] == ("-", "-", "-")
    said = list(scaling_text.sentences(UNEQUAL))
    assert said[1] == "  code differs from a: b"
    assert not any("Amdahl" in line for line in said)


@pytest.mark.parametrize("found", [several(), UNEQUAL, ONE, TWO], ids=["all", "unequal", "1", "2"])
def test_the_page_stands_alone(found):
    text = written(found)
    assert "<script" not in text
    assert not re.search(r"(src|href|url|@import)\s*[=(]", text)
    for row in found.rows:
        assert "<script>" not in row.name or "a&lt;script&gt;&amp;" in text
    drawings = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert [ElementTree.fromstring(drawing).tag for drawing in drawings] == ["svg"] * 3


def test_every_run_is_in_the_figure_and_inside_its_axes():
    drawn = figure(several())
    assert (drawn.clock, drawn.sizes) == ("hours", (1, 2, 4, 8))
    assert len(drawn.times) == len(drawn.efficiency) == len(drawn.bars) == 4
    assert drawn.efficiency[0] == (1, 100)
    for _, y in (*drawn.times, *drawn.fit, *drawn.ideal):
        assert 0 <= y <= drawn.up.high
    assert drawn.fit[-1][0] == 9 < drawn.across.high
    assert sum(drawn.bars[0].parts) == pytest.approx((26614 + 900 + 200) / 3600)
    assert (figure(UNEQUAL).fit, figure(UNEQUAL).efficiency) == ((), ())


@given(st.floats(1e-6, 1e9))
def test_axes_begin_at_zero_and_hold_what_is_drawn(most):
    found = from_zero(most)
    assert found.marks[0] == (0, "0")
    assert 4 <= len(found.marks) <= 7
    assert found.high == pytest.approx(found.marks[-1][0])
    assert most <= found.high * (1 + 1e-6) <= 2 * most + 1e-6 * found.high


@pytest.mark.slow
@pytest.mark.parametrize("found", [several(), UNEQUAL, ONE, TWO], ids=["all", "unequal", "1", "2"])
def test_the_picture_is_a_png(tmp_path, found):
    goal = tmp_path / "fig $x.png"
    picture.write(figure(found), goal)
    assert goal.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert goal.stat().st_size > 10_000


def test_without_matplotlib_it_is_said(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UsageError) as caught:
        picture.write(figure(ONE), tmp_path / "x.png")
    assert "allranks[report]" in caught.value.hint
    assert not (tmp_path / "x.png").exists()


def test_options_have_one_meaning():
    parser = argparse.ArgumentParser()
    commands.scaling_options(parser)
    options = parser.parse_args(["a", "b", "--html", "x y.html"])
    assert (options.names, options.html.name, options.png) == (["a", "b"], "x y.html", None)


# ---------------------------------------------------------------- on real jobs


@pytest.mark.slow
def test_real_runs_of_two_sizes(shared, code):
    for nodes in (1, 2):
        command = (
            "bash",
            "-c",
            "sleep $(python -c 'import os; print(1 / int(os.environ[\"N\"]))')",
        )
        words = ["run", "-n", nodes, "--name", f"sized-{nodes}", "--env", "N=2"]
        done = shared(*words, "--", *command)
        assert done.returncode == 0, done.stderr
    done = shared("report", "scaling", "sized-2", "sized-1", "--json", "--html", "a b.html")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [each["name"] for each in told["runs"]] == ["sized-1", "sized-2"]
    assert told["unit"] == "nodes"
    assert told["work"]["same"] == "assumed"
    for each in told["runs"]:
        assert 0.5 <= each["time"] < each["whole"]
        assert each["before"] > 0 <= each["after"]
    assert told["runs"][0]["gain"] == {"speedup": 1.0, "efficiency": 1.0}
    assert any("shared its CPUs: sized-2" in each for each in told["warnings"])
    assert "<svg" in (code / "a b.html").read_text()
    shown = shared("report", "scaling", "sized-1", "sized-2")
    assert shown.stdout.splitlines()[0].startswith("JOB      NODES  RANKS  TIME")
    assert "warning: assuming equal work" in shown.stderr


@pytest.mark.slow
def test_another_command_is_other_work(shared):
    for name, words in (("one-way", ["true"]), ("other-way", ["echo"])):
        assert shared("run", "--name", name, "--", *words).returncode == 0
    done = shared("report", "scaling", "one-way", "other-way")
    assert "command differs from one-way: other-way" in done.stdout
    done = shared("report", "scaling", "one-way", "other-way", "--assume-equal")
    assert "treated as equal work, as requested: command differs" in done.stderr


@pytest.mark.slow
def test_a_report_on_a_job_without_metrics_and_on_none(shared):
    script = 'test "$RANK" = 2 || echo here'
    shared("run", "-n", 4, "--name", "silent-2", "--", "bash", "-c", script)
    done = shared("report", "silent-2", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["bottleneck"] == "unknown"
    assert [each["kind"] for each in told["insights"]] == ["quiet rank"]
    assert told["insights"][0]["evidence"] == {"ranks": "2", "others": 3}
    shown = shared("report", "silent-2")
    assert shown.stdout.startswith(
        "status: Completed\nbottleneck: unknown\n\nquiet rank: rank 2 printed nothing"
    )
    shared("run", "--name", "plain", "--", "true")
    assert "batch_time and data_time" in shared("report", "plain").stderr
    assert told["needed"]
    for words in (["nosuch"], ["scaling", "nosuch"]):
        done = shared("report", *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert "hint" in done.stderr


@pytest.mark.slow
def test_a_report_says_how_the_job_ended(shared):
    shared("run", "--name", "failed", "--", "python", "-c", "import nosuch")
    told = json.loads(shared("report", "failed", "--json").stdout)
    assert (told["name"], told["status"]) == ("failed", "Failed")
    assert told["error"]["cause"] == "MODULE_MISSING"
    said = shared("report", "failed").stdout.splitlines()
    assert said[:2] == ["status: Failed", f"error: {told['error']['message']}"]
    assert said[2] == f"cause: {told['error']['explanation']}"
    assert said[3] == "bottleneck: unknown"


def test_two_figures_do_not_go_into_one_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    for other in ("x", "./x", str(tmp_path / "link" / "x")):
        options = argparse.Namespace(html=Path("x"), png=Path(other))
        with pytest.raises(UsageError, match="the same file"):
            commands._to_be_written(options)
    commands._to_be_written(argparse.Namespace(html=Path("x"), png=Path("y")))


def test_help_tells_of_both(shared):
    for words in (["report"], ["report", "--help"]):
        assert "report scaling" in shared(*words).stdout
    assert "--assume-equal" in shared("report", "scaling", "--help").stdout


LOOP = """\
import sys, time
for step in range(60):
    time.sleep(float(sys.argv[1]))
    until = time.monotonic() + float(sys.argv[2])
    while time.monotonic() < until:
        pass
    data, whole = float(sys.argv[1]), float(sys.argv[1]) + float(sys.argv[2])
    print(f"Epoch: [0][{step:4d}/60]\\tTime  {whole:.3f} ({whole:.3f})",
          f"Data  {data:.3f} ({data:.3f})", "Loss nan (nan)", sep="\\t", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("waits", "works"), [(0.05, 0.02), (0.02, 0.02)])
def test_a_real_job_that_waits_for_its_data(shared, code, waits, works):
    (code / "train.py").write_text(LOOP)
    words = ("-m", "imagenet", "--", "python", "train.py", waits, works)
    name = json.loads(shared("run", "--json", *words).stdout)["name"]
    told = json.loads(shared("report", name, "--json").stdout)
    assert told["bottleneck"] == "input"
    found = told["insights"][0]
    assert found["kind"] == "input-bound"
    assert found["evidence"]["wait_share"] == pytest.approx(waits / (waits + works), abs=0.02)


@pytest.mark.slow
def test_a_real_job_that_only_computes_is_not_said_to_wait(shared, code):
    (code / "train.py").write_text(LOOP)
    words = ("-m", "imagenet", "--", "python", "train.py", 0.001, 0.04)
    name = json.loads(shared("run", "--json", *words).stdout)["name"]
    assert json.loads(shared("report", name, "--json").stdout)["bottleneck"] in (
        "compute",
        "unknown",
    )


@pytest.mark.slow
def test_of_many_ranks_only_the_points_that_count_are_read(allranks, code, home):
    (code / "train.py").write_text(
        "import json, os\n"
        "if os.environ['RANK'] == '0':\n"
        "    rows = [[name, rank, n, 9.0 + n, 0.5]\n"
        "            for name in ('loss', 'batch_time') for rank in range(12) for n in range(30)]\n"
        "    with open(os.environ['ALLRANKS_METRICS_FILE'], 'a') as file:\n"
        "        print(json.dumps({'points': rows}), file=file)\n"
    )
    allranks("run", "--name", "j", "-p", 12, "--", "python", "train.py")
    with find_server.connect() as client:
        metrics = observed(client, "j").metrics
    counts = {(each.name, each.rank): len(each.points) for each in metrics}
    assert counts == {
        **{("batch_time", rank): 30 for rank in range(12)},
        **{("loss", rank): 30 if rank < 8 else 1 for rank in range(12)},
    }
    assert "a step took 0.5 s" in allranks("report", "j").stdout
