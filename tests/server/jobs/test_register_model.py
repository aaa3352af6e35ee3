"""Models come to be: whole or not there, once, and whatever becomes of their job."""

import hashlib
import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from allranks.core.data.garbage_rules import Kind
from allranks.core.plan import Gang, InputTask, OutputTask, Plan, Rules, Task
from allranks.errors import AllranksError, Conflict, MissingCode, NotFound, SpecError, UsageError
from allranks.events import Event
from allranks.events import Kind as EventKind
from allranks.server.api.routes import job_files
from allranks.server.assets.datastores import Datastores
from allranks.server.assets.model_versions import ModelVersions
from allranks.server.jobs.register_model import Models
from allranks.server.storage.garbage_collection import GarbageCollection, Options
from allranks.settings import Home, make
from allranks.spec.fields.azureml_references import Asset
from allranks.spec.model import parse
from allranks.store.assets import Assets
from allranks.store.database import open_database
from allranks.store.files.blobs import Blobs
from allranks.store.files.trees import TEMPORARY_PREFIX, Entry, Trees
from allranks.store.jobs.records import Records


class House:
    """A home with a record and no server."""

    def __init__(self, root):
        self.home = Home(root)
        make(self.home)
        self.database = database = open_database(self.home.database)
        self.records, self.blobs = Records(database), Blobs(self.home.blobs)
        self.versions = ModelVersions(Assets(database, "model"), Trees(self.home.models))
        self.data = Assets(database, "data")
        self.admission_lock = threading.Lock()
        self.models = Models(
            self.home, self.versions, self.blobs, self.records.get, self.admission_lock
        )
        self.stores = Datastores(self.home.data, assets=self.data, models=self.versions)

    def job(self, name, files, *, live=False, spec=None, **task):
        outputs = (
            OutputTask("o", str(self.home.jobs / name / "named-outputs" / "o")),
            OutputTask("far", "", uri="s3://bucket/far"),
        )
        plan = Plan(
            Gang(f"{name}.1", 1, ("x",)),
            Task(name, "birds", "python train.py", outputs=outputs, **task),
            Rules(1),
            "fake",
        )
        row = self.records.create(spec or {}, plan)
        if not live:
            data = {"status": "Completed", "exit_code": 0, "error": None}
            self.records.apply(row, [Event(EventKind.FINISHED, time.time(), data=data)])
        for path, content in files.items():
            goal = self.home.jobs / name / path
            goal.parent.mkdir(parents=True, exist_ok=True)
            goal.write_bytes(content)
        return name

    def register(self, job, path="outputs/model.pt", **given):
        return self.models.register(parse({"name": "birds", "job": job, "path": path, **given}))

    def clear(self, **asked):
        models = self.versions.in_use
        asked = Options(0.0, **asked)
        return GarbageCollection(self.home, self.records, self.admission_lock, asked, models).run()

    def content(self, version):
        return self.versions.place(self.versions.row(Asset("birds", version))).read_bytes()


@pytest.fixture
def house(tmp_path):
    made = House(tmp_path / "ho'me")
    yield made
    made.database.dispose()


MODEL = {"artifacts/outputs/model.pt": b"weights" * 100}


@pytest.mark.medium
def test_a_model_outlives_its_job_and_knows_where_it_comes_from(house):
    spec = {
        "inputs": {"data": {"path": "azureml:photos:3"}, "lr": 0.1},
        "properties": {"azureml.git.commit": "c0ffee", "azureml.git.dirty": "True"},
    }
    house.job("j", MODEL, spec=spec, code="c0de", environment="torch:2")
    row = house.register("j", tags={"a": "b"})
    assert (row.name, row.version) == ("birds", "1")
    assert row.spec["job"] == "j"
    assert (row.spec["type"], row.spec["flavors"]) == ("custom_model", {"pytorch": {}})
    assert (row.spec["files"], row.spec["size"]) == (1, 700)
    assert row.spec["lineage"] == {
        "experiment": "birds",
        "status": "Completed",
        "attempt": 1,
        "command": "python train.py",
        "code": "c0de",
        "commit": "c0ffee",
        "uncommitted_changes": "True",
        "environment": {"name": "current"},
        "inputs": {"data": "azureml:photos:3", "lr": 0.1},
    }
    shutil.rmtree(house.home.jobs / "j")
    assert house.content("1") == b"weights" * 100


def test_a_file_that_a_model_has_not_got_is_told_with_its_model(house):
    house.job("j", MODEL)
    house.register("j")
    request = SimpleNamespace(path_params={"reference": "birds:1"})
    place = job_files._place(request, SimpleNamespace(models=house.models))
    assert job_files.file(place, "model.pt", request).path == place.root / "model.pt"
    with pytest.raises(NotFound) as caught:
        job_files.file(place, "other.pt", request)
    assert caught.value.where == "the model birds:1"


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({"job": "j", "path": "outputs.o/deep/m.onnx"}, "m.onnx"),
        ({"job": "j", "path": "named-outputs/o/deep/m.onnx"}, "m.onnx"),
        ({"path": "azureml://jobs/j/outputs/o/paths/deep/m.onnx"}, "m.onnx"),
        ({"path": "azureml://jobs/j/outputs/artifacts/paths/outputs/model.pt"}, "model.pt"),
        ({"path": "runs:/j/outputs/model.pt"}, "model.pt"),
        ({"job": "j", "path": "runs:/j/outputs"}, "model.pt"),
    ],
)
def test_ways_to_say_what_of_a_job(house, given, path):
    house.job("j", {**MODEL, "named-outputs/o/deep/m.onnx": b"x"})
    row = house.models.register(parse({"name": "birds", **given}))
    assert [each.path for each in house.versions.manifest(row)] == [path]


@pytest.mark.parametrize(
    ("address", "same"),
    [
        (
            "outputs/model.pt",
            [
                {"job": "j", "path": "artifacts/outputs/model.pt"},
                {"job": "j", "path": "outputs//./model.pt"},
                {"path": "azureml://jobs/j/outputs/artifacts/paths/outputs/model.pt"},
                {"path": "runs:/j/outputs/model.pt"},
                {"job": "j", "path": "runs:/j/artifacts/outputs/model.pt"},
            ],
        ),
        (
            "named-outputs/o/deep/m.onnx",
            [
                {"job": "j", "path": "outputs.o/deep/m.onnx"},
                {"path": "azureml://jobs/j/outputs/o/paths/deep/m.onnx"},
                {"path": "runs:/j/outputs.o/deep/m.onnx"},
            ],
        ),
        ("outputs", [{"job": "j", "path": "artifacts/outputs/"}]),
        ("artifacts", [{"path": "azureml://jobs/j/outputs/artifacts/paths/"}]),
    ],
)
def test_one_file_is_one_version_however_it_is_named(house, address, same):
    house.job("j", {**MODEL, "named-outputs/o/deep/m.onnx": b"x"})
    first = house.register("j", address)
    for given in same:
        again = house.models.register(parse({"name": "birds", **given}))
        assert (again.version, again.spec["path"], again.new) == (first.version, address, False)


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"path": "outputs/nosuch.pt"}, SpecError, "has no 'outputs/nosuch.pt'"),
        ({"path": "outputs.p/x"}, SpecError, "has no output 'p'"),
        ({"path": "outputs.far/x"}, UsageError, "far is in a datastore"),
        ({"path": "../../token"}, SpecError, "not a path of a job's file"),
        ({"path": "runs:/other/outputs"}, UsageError, "is not of the job j"),
        ({"job": "nosuch", "path": "outputs"}, AllranksError, "job 'nosuch' not found"),
        ({"job": None, "path": "s3://bucket/model"}, UsageError, "cannot register a model from"),
        ({"path": "outputs", "type": "uri_file"}, SpecError, "type"),
        ({"path": "outputs", "labels": ["x"]}, SpecError, "labels"),
    ],
)
@pytest.mark.medium
def test_what_is_refused_leaves_nothing(house, given, error, said):
    house.job("j", MODEL)
    with pytest.raises(error, match=said) as caught:
        house.models.register(parse({"name": "birds", "job": "j", **given}))
    assert caught.value.hint
    assert house.versions.in_use() == set()
    assert not house.home.models.exists() or not [*house.home.models.iterdir()]


def test_of_a_job_that_is_running_nothing_is_taken(house):
    house.job("j", MODEL, live=True)
    with pytest.raises(Conflict, match="may still write it") as caught:
        house.register("j")
    assert "allranks job wait j" in str(caught.value.hint)


def test_two_jobs_register_the_same_version_at_once(house):
    """One has it, whole; the other is told; and nothing of the other is left."""
    names = [house.job(f"j{n}", {"artifacts/outputs/model.pt": b"%d" % n}) for n in range(8)]
    start = threading.Barrier(len(names))

    def one(name):
        start.wait()
        try:
            return house.register(name, version="7")
        except Conflict as error:
            return error

    with ThreadPoolExecutor(len(names)) as pool:
        ended = [*pool.map(one, names)]
    (won,) = [each for each in ended if not isinstance(each, Conflict)]
    lost = [each for each in ended if isinstance(each, Conflict)]
    assert len(lost) == 7
    assert all("birds:7 already exists with other content" in str(each) for each in lost)
    assert house.content("7") == won.spec["job"][1:].encode()
    assert [each.name for each in house.home.models.iterdir()] == [won.spec["digest"]]


def test_without_a_version_each_gets_a_number_and_the_very_same_is_one(house):
    names = [house.job(f"j{n}", MODEL) for n in range(8)]
    with ThreadPoolExecutor(len(names)) as pool:
        versions = {row.version for row in pool.map(house.register, names)}
    assert versions == {str(n) for n in range(1, 9)}
    newest = house.versions.row(Asset("birds", label="latest"))
    assert house.register(newest.spec["job"]) == newest
    # All of them are the same files, which are there once.
    assert len([*house.home.models.iterdir()]) == 1


def test_what_was_broken_off_goes_and_what_has_a_version_stays(house):
    row = house.register(house.job("j", MODEL))
    coming = house.home.models / f"{TEMPORARY_PREFIX}abc"
    (coming / "files").mkdir(parents=True)
    (coming / "files" / "half").write_bytes(b"x")
    assert house.clear().items == []
    old = time.time() - 7200
    for each in (coming / "files" / "half", coming / "files", coming):
        os.utime(each, (old, old))
    # As if the server was killed before the version was there.
    orphan = house.home.models / ("0" * 64)
    shutil.copytree(house.home.models / row.spec["digest"], orphan)
    went = house.clear().items
    assert {(each.kind, each.name) for each in went} == {
        (Kind.UNREGISTERED, coming.name),
        (Kind.MODEL, orphan.name),
    }
    assert house.content("1") == b"weights" * 100


def test_files_go_with_the_last_version_that_no_live_job_reads(house):
    for name in ("j", "k"):
        house.register(house.job(name, MODEL))
    digest = house.versions.row(Asset("birds", "1")).spec["digest"]
    house.versions.assets.delete("birds", "1")
    assert house.clear().items == []
    source = str(house.versions.place(house.versions.row(Asset("birds", "2"))))
    house.job("reader", {}, live=True, inputs=(InputTask("m", source=source),))
    house.versions.assets.delete("birds", "2")
    assert house.clear().items == []
    row = house.records.get("reader")
    data = {"status": "Completed", "exit_code": 0, "error": None}
    house.records.apply(row, [Event(EventKind.FINISHED, time.time(), data=data)])
    assert [(each.kind, each.name) for each in house.clear().items] == [(Kind.MODEL, digest)]
    assert [*house.home.models.iterdir()] == []


def sent(house, content, path="m.pt"):
    digest = hashlib.sha256(content).hexdigest()
    with house.blobs.receive(digest) as take:
        take(content)
    return Entry(path, len(content), digest)


def test_files_that_are_sent(house):
    given = parse({"name": "birds", "path": "/home/me/m.pt"})
    with pytest.raises(MissingCode):
        house.models.register(given, [Entry("m.pt", 1, "0" * 64)])
    entry = sent(house, b"mine")
    row = house.models.register(given, [entry])
    assert "lineage" not in row.spec
    assert house.content("1") == b"mine"
    # What was damaged since it came is asked for again.
    house.blobs.path(entry.sha256).write_bytes(b"mint")
    with pytest.raises(MissingCode, match="damaged"):
        house.models.register(given, [entry])
    assert not house.blobs.has(entry.sha256)


def test_a_name_is_that_of_data_unless_a_model_is_wanted_or_there_is_none(house):
    house.register(house.job("j", MODEL))
    model = house.versions.place(house.versions.row(Asset("birds", "1")))
    for path in ("azureml:birds:1", "azureml:birds@latest", "azureml:birds"):
        found = house.stores.locate(path, "inputs.m.path")
        assert (found.path, found.asset) == (str(model), "birds:1")
    house.data.create("birds", None, {"path": "/photos"})
    house.data.create("album", None, {"path": "azureml:birds:1"})
    assert house.stores.locate("azureml:birds:1", "x").path == "/photos"
    assert house.stores.locate("azureml:birds:1", "x", model=True).path == str(model)
    assert house.stores.locate("azureml:album:1", "x", model=True).path == "/photos"
    with pytest.raises(SpecError, match="model birds:2 not found") as caught:
        house.stores.locate("azureml:birds:2", "x", model=True)
    assert caught.value.where == "x"
    assert "its versions: 1" in str(caught.value.hint)


def test_a_model_that_goes_while_a_job_comes_in_is_missed(house):
    row = house.register(house.job("j", MODEL))
    place = str(house.versions.place(row))
    house.versions.require_existing([place, None, "/nowhere"])
    house.versions.assets.delete("birds", "1")
    house.clear()
    with pytest.raises(AllranksError, match="was deleted"):
        house.versions.require_existing([place])


def test_scripts_find_a_model_under_the_name_it_was_registered_with(house):
    """Jobs get a folder with one file as that file."""
    job = house.job("a", {"outputs/model.pt": b"m", "outputs/one/model.pt": b"m"})
    house.job("b", {"outputs/two/a": b"a", "outputs/two/b": b"b"})
    names = [
        house.versions.registered_as(house.register(source, path))
        for source, path in ((job, "outputs/model.pt"), (job, "outputs/one"), ("b", "outputs/two"))
    ]
    assert names == ["model.pt", "one/model.pt", "two"]
