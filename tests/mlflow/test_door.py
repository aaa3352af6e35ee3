"""Who comes through our port at /mlflow, and how far."""

import base64
import json
import sys
from pathlib import Path

import pytest

from tests.mlflow.conftest import Tracked
from tests.support import Allranks

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(600)]

SEARCH = "/api/2.0/mlflow/experiments/search?max_results=1"


def test_a_token_is_asked_for_and_strangers_pages_are_refused(tracked: Tracked) -> None:
    token = (tracked.home / "token").read_text().strip()
    password = base64.b64encode(f"anyone:{token}".encode()).decode()
    host = tracked.url.removeprefix("http://")
    assert tracked.ask(SEARCH)[0] == 200
    assert tracked.ask(SEARCH, Authorization=f"Basic {password}")[0] == 200
    assert tracked.ask(SEARCH, Authorization="Bearer wrong")[0] == 401
    assert tracked.ask(SEARCH, Authorization="Basic wrong")[0] == 401
    assert tracked.ask(SEARCH, Host="127.0.0.1.evil.example")[0] == 403
    assert tracked.ask(SEARCH, Origin="http://evil.example")[0] == 403
    assert tracked.ask(SEARCH, Origin=f"http://{host}")[0] == 200
    assert b"<title>MLflow" in tracked.ask("/")[1]


def test_nothing_but_our_port_leads_to_it(tracked: Tracked) -> None:
    assert tracked.ask(SEARCH)[0] == 200
    (child,) = tracked.child("uvicorn")
    assert child.net_connections("inet") == []


OTHERS = """
import json, os, sys
from mlflow import MlflowClient
client, told = MlflowClient(), {}
def tries(what, act):
    try:
        act()
        told[what] = "done"
    except Exception as error:
        told[what] = "refused" if "PERMISSION_DENIED" in str(error) else str(error)
other, mine = sys.argv[1], os.environ["MLFLOW_RUN_ID"]
tries("reads another's", lambda: client.get_run(other))
tries("writes another's", lambda: client.log_metric(other, "x", 1))
tries("tags another's", lambda: client.set_tag(other, "x", "1"))
tries("deletes another's", lambda: client.delete_run(other))
tries("deletes its own", lambda: client.delete_run(mine))
tries("deletes experiments", lambda: client.delete_experiment("0"))
tries("files of another's", lambda: client.log_text(other, "x", "x.txt"))
tries("tags its own", lambda: client.set_tag(mine, "x", "1"))
print(json.dumps(told))
"""


def test_a_job_writes_what_is_its_own(tracked: Tracked) -> None:
    tracked.job("import mlflow; mlflow.log_metric('a', 1)", "--name", "another")
    other = tracked.runs("another")[0]["info"]["run_id"]
    (tracked.code / "script.py").write_text(OTHERS)
    done = tracked.allranks("run", "--", "python", "script.py", other, client="mlflow3")
    told = json.loads(done.stdout.splitlines()[-1])
    assert told.pop("reads another's") == told.pop("tags its own") == "done"
    assert set(told.values()) == {"refused"}, told


def test_a_jobs_token_ends_with_it(tracked: Tracked) -> None:
    said = tracked.job("import os; print(os.environ['MLFLOW_TRACKING_TOKEN'])", "--name", "brief")
    status, answer = tracked.ask(SEARCH, Authorization=f"Bearer {said.strip()}")
    assert (status, json.loads(answer)["error_code"]) == (403, "PERMISSION_DENIED")


def test_without_mlflow_all_else_works(allranks: Allranks) -> None:
    done = allranks("run", "--", "env")
    assert done.returncode == 0
    assert "MLFLOW" not in done.stdout


def test_without_mlflow_its_place_tells_how_to_have_it(allranks: Allranks, home: Path) -> None:
    assert allranks("server", "start").returncode == 0
    bare = Tracked(home, home, allranks, "")
    status, answer = bare.ask(SEARCH)
    assert status == 501
    assert "pip install 'allranks[mlflow]'" in json.loads(answer)["message"]
    assert bare.ask(SEARCH, Authorization="Bearer wrong")[0] == 401


def test_a_python_without_it_is_told_to_the_script(allranks: Allranks, home: Path) -> None:
    env = {"ALLRANKS_MLFLOW_PYTHON": sys.executable}
    assert allranks("server", "start", env=env).returncode == 0
    status, answer = Tracked(home, home, allranks, "").ask(SEARCH)
    assert status == 501
    assert "No module named mlflow" in json.loads(answer)["message"]


def test_mlflow_is_never_imported_by_us(allranks: Allranks, home: Path, tmp_path: Path) -> None:
    (tmp_path / "flask.py").write_text("")
    (tmp_path / "mlflow.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w')")
    env = {"PYTHONPATH": str(tmp_path)}
    done = allranks("run", "--", "env", env=env)
    assert "MLFLOW_TRACKING_URI" in done.stdout  # the server has seen that it is there
    assert allranks("job", "list", env=env).returncode == 0
    assert not (tmp_path / "imported").exists()
