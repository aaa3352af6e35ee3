"""What a job that continues another one gets of it."""

from __future__ import annotations

from allranks.core.data.state_manifest import Entry
from allranks.core.job.continuation import SHARED, Carried, File, carryover, files_of_state
from allranks.core.plan import OutputTask, Task


def task(name: str, *outputs: OutputTask, state: str = "") -> Task:
    record = f"/home/jobs/{name}"
    return Task(name, "e", "c", outputs=outputs, record=record, state=state)


def own(job: str, name: str) -> OutputTask:
    return OutputTask(name, f"/home/jobs/{job}/named-outputs/{name}")


def test_outputs_in_the_record_are_copied() -> None:
    file = OutputTask("f", "/home/jobs/{}/named-outputs/f/f", is_file=True)
    old = task("a", own("a", "m"), file._replace(path=file.path.format("a")))
    new = task("b", own("b", "m"), file._replace(path=file.path.format("b")), own("b", "new"))
    assert carryover(old, new) == ((*SHARED, "named-outputs/m", "named-outputs/f"), ())


def test_outputs_in_the_same_place_elsewhere_are_there_already() -> None:
    there, direct = OutputTask("m", "/data/m"), OutputTask("d", "s3://b/d", uri="s3://b/d")
    outputs = (there, direct._replace(mode="direct"))
    assert carryover(task("a", *outputs), task("b", *outputs)) == (SHARED, ())


def test_what_is_not_carried_over_is_told() -> None:
    old = task("a", OutputTask("m", "/data/a"), own("a", "gone"), own("a", "moved"), state="s")
    brought = OutputTask("moved", "", uri="s3://me:secret@b/moved")
    folders, notes = carryover(old, task("b", OutputTask("m", "/data/b"), brought, state="t"))
    assert folders == SHARED
    assert len(notes) == 4
    assert "goes to /data/b" in notes[0]
    assert "a wrote it to /data/a" in notes[0]
    assert "s3://" in notes[1]
    assert "secret" not in notes[1]
    assert "the output gone of a is left out" in notes[2]
    assert "the state of a is left out: this job has the state t" in notes[3]


def test_the_newest_files_are_named_with_size_and_age() -> None:
    entries = {
        "shared/step-4": Entry("file", "x", 310_000_000, 900 * 10**9),
        "shared": Entry("folder"),
        "shared/latest": Entry("link", target="step-4"),
    }
    files = [File("artifacts/logs/events", 10, 999.0), File("named-outputs/m/1", 1, 100.0)]
    found = Carried("a").add(files).add(files_of_state(entries))
    said = found.sentence(1020.0)
    assert said.startswith("continues from 3 files of a (310.0 MB); newest: ")
    order = ("state/shared/step-4 (310.0 MB, 2 minutes old)", "named-outputs/m/1 (1 byte", "logs")
    assert [said.index(each) for each in order] == sorted(said.index(each) for each in order)
    assert found.newest[0].modified == 900.0


def test_names_that_are_not_utf_8_can_be_recorded() -> None:
    entries = {"shared/\udcff\ud800": Entry("file", "x", 1, 10**9)}
    said = Carried("a").add(files_of_state(entries)).sentence(2.0)
    assert "state/shared/?? (1 byte" in said.encode().decode()


def test_a_job_that_left_nothing() -> None:
    assert Carried("a").sentence(0.0) == "a left no files to continue from"
