"""What ranks wrote and a full disk does not take: time for space, then a failure that names where
it is."""

import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from allranks.agent.lifecycle import unsaved
from allranks.agent.lifecycle.agent_calls import ServerAway
from allranks.agent.lifecycle.parts import Part, Run
from allranks.core.plan import Task
from allranks.settings import Clocks
from allranks.statuses import Reason
from tests.support import Allranks, answer, until

FULL = "No space left on device: /d"
RUN, STOP = {"do": "go"}, {"do": "stop", "why": "CANCELED"}


class Attempt:
    reason = Reason.DONE
    message = ""

    def overrule(self, reason: Reason, message: str = "", hint: str = "") -> None:
        self.reason, self.message = reason, message


def run_of(attempt: Attempt) -> Run:
    run = Run(1, Task(job="j", experiment="e", command="true"), Path("/none"))
    run.attempt = attempt  # type: ignore[assignment]
    return run


def calls(orders: list[dict[str, Any]], waits: list[str], notes: list[str]) -> Any:
    def order() -> dict[str, Any]:
        return orders.pop(0) if len(orders) > 1 else orders[0]

    def note(message: str, facts: object) -> None:
        notes.append(message)

    return SimpleNamespace(
        order=order,
        patience=1.0,
        inbox=SimpleNamespace(wait=lambda seconds: None),
        link=SimpleNamespace(silent_for=lambda: 150.0),
        clocks=Clocks(unsent=60.0),
        waits=waits.append,
        note=note,
        make_space=lambda task: None,
    )


def test_saving_waits_while_the_disk_is_full() -> None:
    results, waits = [FULL, FULL, ""], list[str]()
    why = unsaved.with_room(lambda: results.pop(0), run_of(Attempt()), calls([RUN], waits, []))
    assert (why, results) == ("", [])
    assert waits == [f"waits for space: {FULL}"] * 2 + [""]


def test_the_wait_begins_when_the_disk_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Saving may have taken longer than the disk gets."""
    clock, results = SimpleNamespace(now=0.0), [FULL, ""]
    monkeypatch.setattr(unsaved, "time", SimpleNamespace(monotonic=lambda: clock.now))

    def save() -> str:
        clock.now += 1000.0 if len(results) == 2 else 1.0
        return results.pop(0)

    assert unsaved.with_room(save, run_of(Attempt()), calls([RUN], [], [])) == ""


@pytest.mark.parametrize("results", [["permission denied"], [FULL, "permission denied"]])
def test_no_time_mends_another_error(results: list[str]) -> None:
    why = unsaved.with_room(lambda: results.pop(0), run_of(Attempt()), calls([RUN], [], []))
    assert (why, results) == ("permission denied", [])


def test_a_cancel_or_a_failure_ends_the_wait() -> None:
    failed = Attempt()
    failed.reason = Reason.RANK_EXITED
    assert unsaved.with_room(lambda: FULL, run_of(failed), calls([RUN], [], [])) == FULL
    assert (
        unsaved.with_room(lambda: FULL, run_of(Attempt()), calls([RUN, RUN, STOP], [], [])) == FULL
    )


def test_without_a_server_the_parts_that_need_none_are_saved() -> None:
    saved, lost = list[str](), list[str]()

    class Copies(Part):
        def finish(self, run: Run) -> str:
            saved.append("copies")
            return ""

    class NeedsServer(Part):
        def finish(self, run: Run) -> str:
            raise ServerAway

        def lost(self, run: Run, why: str) -> None:
            lost.append(why)

    several = calls([RUN], [], [])
    unsaved.finish([Copies(several), NeedsServer(several)], run_of(Attempt()), several)
    assert (saved, lost) == (["copies"], ["the server did not answer for 2 min 30 s"])


@pytest.mark.parametrize(("reason", "patience"), [(Reason.DONE, 60.0), (Reason.RANK_EXITED, 1.0)])
def test_only_a_done_run_waits_long_for_a_server(reason: Reason, patience: float) -> None:
    waited, several, attempt = list[float](), calls([RUN], [], []), Attempt()
    attempt.reason = reason

    class Waits(Part):
        def finish(self, run: Run) -> str:
            waited.append(several.patience)
            return ""

    unsaved.finish([Waits(several)], run_of(attempt), several)
    assert [*waited, several.patience] == [patience, 1.0]


def test_another_server_ends_no_wait() -> None:
    results = [FULL, FULL, ""]
    orders = [{**RUN, "server": "a"}, {**RUN, "server": "b"}, {"do": "stop", "why": "DONE"}]
    assert unsaved.with_room(lambda: results.pop(0), run_of(Attempt()), calls(orders, [], [])) == ""


def test_an_attempt_whose_files_are_not_saved_has_failed_unless_it_is_canceled() -> None:
    attempt, notes = Attempt(), list[str]()
    unsaved.fail(run_of(attempt), calls([RUN], [], notes), "not all is saved")
    assert (attempt.reason, attempt.message, notes) == (Reason.OUTPUTS_LOST, "not all is saved", [])
    attempt = Attempt()
    unsaved.fail(run_of(attempt), calls([STOP], [], notes), "not all is saved")
    assert (attempt.reason, notes) == (Reason.CANCELED, ["not all is saved"])


def test_files_are_kept_in_the_record_or_on_their_disk(tmp_path: Path) -> None:
    agent, record = tmp_path / "agent", tmp_path / "re'cord"
    (agent / "state").mkdir(parents=True)
    (agent / "state" / "f").write_text("x")
    task: Any = SimpleNamespace(sends_files=False, record=str(record))
    where: Any = SimpleNamespace(node=1, own_disk=False)
    assert str(record / "unsaved/node-1/state") in unsaved.keep(agent / "state", task, where)
    assert (record / "unsaved/node-1/state/f").read_text() == "x"
    assert not unsaved.is_kept(agent)
    (agent / "batch.log").write_text("")
    assert not unsaved.is_kept(agent / "batch.log")

    (agent / "state").mkdir()
    task.record = "/proc/none"  # as on a full disk, nothing can be made there
    assert str(agent / "unsaved-state") in unsaved.keep(agent / "state", task, where)
    assert unsaved.is_kept(agent)

    task.sends_files = True
    assert unsaved.keep(agent / "state", task, where) == ""
    # A disk of the node's that outlasts the agent.
    (agent / "state").mkdir()
    unsaved.folder_trees.remove(agent / "unsaved-state")
    where.own_disk = True
    assert str(agent / "unsaved-state") in unsaved.keep(agent / "state", task, where)


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="a full disk is a small tmpfs, which root can mount")
@pytest.mark.parametrize("room", [False, True])
def test_a_job_whose_state_has_no_space_is_not_completed(
    allranks: Allranks, home: Path, room: bool
) -> None:
    clocks = {"ALLRANKS_UNSENT": "60" if room else "2", "ALLRANKS_GRACE": "1"}
    assert allranks("server", "start", env=clocks).returncode == 0
    disk, shown = home / "states", dict[str, Any]()
    disk.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", disk]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root, and a container that allows it")

    def waits() -> bool:
        done = allranks("job", "show", "full", "--json")
        shown.update(json.loads(done.stdout) if done.returncode == 0 else {"status": ""})
        assert shown["status"] not in ("Completed", "Failed")
        return bool(shown["status"] == "Finalizing")

    script = 'head -c 3000000 /dev/zero >"$ALLRANKS_STATE_DIR/model"'
    try:
        with ThreadPoolExecutor(1) as beside:
            run = beside.submit(allranks, "run", "--name", "full", "--", "sh", "-c", script)
            if room:
                until(waits)
                assert "node 0 waits for space: " in shown["status_reason"]
                subprocess.run(["mount", "-o", "remount,size=9m", disk], check=True)
            ended = run.result()
        job = answer(allranks, "job", "show", "full")
    finally:
        allranks("server", "stop")
        subprocess.run(["umount", "--lazy", disk], check=True)
    kept = home / "jobs" / "full" / "unsaved" / "node-0" / "state"
    if room:
        assert (job["status"], ended.returncode, kept.exists()) == ("Completed", 0, False)
        return
    assert (job["status"], job["error"]["reason"], ended.returncode) == (
        "Failed",
        "OUTPUTS_LOST",
        1,
    )
    for text in (job["error"]["message"], ended.stderr):
        assert str(kept) in text
    assert (kept / "shared" / "model").stat().st_size == 3_000_000


@pytest.mark.slow
def test_a_failed_job_says_that_its_state_is_not_saved(allranks: Allranks, home: Path) -> None:
    assert allranks("server", "start", env={"ALLRANKS_GRACE": "1"}).returncode == 0
    (home / "states").mkdir(exist_ok=True)
    (home / "states" / "of-jobs").touch()  # in the way of the job's state
    script = 'echo 1 >"$ALLRANKS_STATE_DIR/model"; exit 3'
    ended = allranks("run", "--name", "j", "--", "sh", "-c", script)
    assert ended.returncode == 3
    kept = home / "jobs" / "j" / "unsaved" / "node-0" / "state"
    assert (kept / "shared" / "model").read_text() == "1\n"
    shown = allranks("job", "show", "j").stdout
    for text, start in ((ended.stderr, "note: "), (shown, "unsaved ")):
        (line,) = [each for each in text.splitlines() if each.startswith(start)]
        assert "not all of the state folder is saved: " in line
        assert str(kept) in line
