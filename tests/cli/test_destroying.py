"""What destroys, ends or moves takes whole names, and asks: on a terminal, else by --yes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from allranks.cli.commands import COMMANDS
from allranks.cli.parser import parser_of
from tests.support import Allranks, answer, on_a_terminal, until

ENDING = ("delete", "cancel", "archive", "restore", "release", "preempt")
DELETES = sorted(name for name in COMMANDS if name.split()[-1] in ("delete", "gc"))


@pytest.mark.slow
def test_only_whole_names_end_a_job(allranks: Allranks, home: Path) -> None:
    for name in ("pp-10", "pp-2"):
        assert allranks("run", "-q", "--name", name, "--", "true").returncode == 0
    assert allranks("run", "-q", "--name", "ww-10", "--detach", "--", "sleep", "60").returncode == 0
    for verb in ENDING:
        for beginning in ("pp-1", "ww-1", "ww"):
            refused = allranks("job", verb, beginning, "--yes")
            assert refused.returncode == 2, (verb, beginning)
            assert f"job '{beginning}' not found" in refused.stderr
    assert "did you mean `pp-10`" in allranks("job", "delete", "pp-1", "--yes").stderr
    assert answer(allranks, "job", "show", "pp-1")["name"] == "pp-10", "looking takes a beginning"
    assert answer(allranks, "job", "show", "ww")["ended_at"] is None

    guess = allranks("job", "cancel", "-")
    assert guess.returncode == 2
    assert "without a terminal - is a guess: ww-10\n\nhint: name it, or add --yes" in guess.stderr
    assert allranks("job", "cancel", "-", "--yes").returncode == 0
    until(lambda: answer(allranks, "job", "show", "ww-10")["status"] == "Canceled")

    asked = allranks("job", "delete", "pp-10", "--json")
    assert asked.returncode == 2
    needs = "without a terminal this needs --yes: delete pp-10 with outputs and logs, for good"
    assert json.loads(asked.stdout)["message"] == needs
    assert on_a_terminal(home, b"n\n", "job", "delete", "-")[0] == 1
    assert [job["name"] for job in json.loads(allranks("job", "list", "--json").stdout)] == [
        "ww-10",
        "pp-2",
        "pp-10",
    ]


@pytest.mark.medium
@pytest.mark.parametrize("name", DELETES)
def test_a_delete_without_a_terminal_needs_yes(name: str, shared: Allranks) -> None:
    words = ["a"] if name != "gc" else []
    more = ["-e", "e"] if name.startswith("deployment") else []
    refused = shared(*name.split(), *words, *more)
    assert refused.returncode == 2
    if not name.startswith(("job", "endpoint", "deployment")):  # they look for it first
        assert "hint: add --yes if it is meant" in refused.stderr
    assert parser_of(name).parse_args([*words, *more, "-y"]).yes


@pytest.mark.medium
def test_a_restore_over_a_home_asks(allranks: Allranks, home: Path, tmp_path: Path) -> None:
    assert allranks("job", "list").returncode == 0
    assert allranks("server", "backup", tmp_path / "b.tar").returncode == 0
    assert allranks("server", "stop").returncode == 0
    missing = allranks("server", "restore", tmp_path / "nope.tar")
    assert "backup not found" in missing.stderr, missing.stderr
    refused = allranks("server", "restore", tmp_path / "b.tar")
    assert refused.returncode == 2
    assert f"replace the home {home}" in refused.stderr
    assert allranks("server", "restore", tmp_path / "b.tar", "--yes").returncode == 0


@pytest.mark.medium
def test_a_backup_goes_into_a_folder_that_is_there(shared: Allranks, tmp_path: Path) -> None:
    refused = shared("server", "backup", f"{tmp_path}/no where/")
    assert refused.returncode == 2
    assert "there is no folder" in refused.stderr
    assert f"hint: create it: mkdir -p '{tmp_path}/no where/'" in refused.stderr
    assert [*tmp_path.glob("no*")] == []


@pytest.mark.slow
def test_a_copy_beside_its_original_gets_a_port_of_its_own(
    allranks: Allranks, tmp_path: Path
) -> None:
    assert allranks("run", "-q", "--name", "kept", "--", "true").returncode == 0
    assert allranks("server", "backup", tmp_path / "b.tar").returncode == 0
    port = answer(allranks, "server", "status")["url"].rpartition(":")[2]
    beside = {"ALLRANKS_HOME": str(tmp_path / "copy")}
    restored = allranks("server", "restore", tmp_path / "b.tar", env=beside)
    assert restored.returncode == 0, restored.stderr
    assert f"port {port} is in use here: this home gets one of its own" in restored.stderr
    try:
        assert json.loads(allranks("job", "show", "kept", "--json", env=beside).stdout)
    finally:
        assert allranks("server", "stop", env=beside).returncode == 0
