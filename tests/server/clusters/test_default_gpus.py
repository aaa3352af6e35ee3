"""The GPUs of jobs that do not say how many they want, over HTTP, on clusters that say what they
have at once, late, or never."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from allranks.engines.base import Host
from allranks.errors import EngineError
from allranks.server.clusters.clusters import HostGpus
from tests.server.serving import FAKE, JOB, Served, Target, served
from tests.support import until


class Cluster(Target):
    """One host of eight GPUs, as soon as it may ``answer``."""

    answer = threading.Event()

    def hosts(self, options: object) -> list[Any]:
        self.answer.wait(60)
        return [Host("h", gpus=8)]


class Silent(Target):
    def hosts(self, options: object) -> list[Any]:
        raise EngineError("nobody is there")


KIND = FAKE._replace(make=Cluster)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    Cluster.answer.set()
    with served(tmp_path_factory.mktemp("gpus") / "h", KIND) as found:
        yield found


def submitted(server: Served, **spec: Any) -> dict[str, Any]:
    name = f"j-{time.monotonic_ns()}"
    body = {**JOB, "spec": {**JOB["spec"], "name": name, **spec}}  # type: ignore[dict-item]
    told = server.people.post("/api/v1/jobs", json=body)
    assert told.status_code == 201, told.text
    found: dict[str, Any] = told.json()
    return found


def torch(procs: int) -> dict[str, Any]:
    return {"type": "pytorch", "process_count_per_instance": procs}


@pytest.mark.parametrize(
    ("spec", "gpus", "said"),
    [
        ({}, 1, "one per process (a node has 8)"),
        ({"distribution": torch(4)}, 4, "GPUs: 4 per node, one per process"),
        ({"distribution": torch(20)}, 8, "8 per node for 20 processes"),
        ({"distribution": {"type": "mpi", "process_count_per_instance": 2}}, 2, "one per process"),
        ({"distribution": {"type": "tensorflow"}}, 1, "one per process"),
        ({"distribution": {"type": "ray"}}, 8, "all it has"),
        ({"resources": {"gpus_per_instance": 0}}, 0, ""),
        ({"resources": {"gpus_per_instance": 5}, "distribution": torch(2)}, 5, ""),
        ({"resources": {"instance_type": "Standard_NC24rs_v3"}}, 4, "as Standard_NC24rs_v3 has"),
        ({"resources": {"instance_type": "ml.p2.16xlarge"}}, 8, "ml.p2.16xlarge has 16"),
        ({"resources": {"instance_type": "Standard_DS3_v2"}}, 0, "has none"),
        ({"resources": {"instance_type": "dgx"}}, 1, "allranks instance map dgx --gpus G"),
        ({"resources": {"instance_type": "dgx", "gpus_per_instance": 0}}, 0, ""),
    ],
)
def test_a_job_gets_gpus(server: Served, spec: dict[str, Any], gpus: int, said: str) -> None:
    made = submitted(server, **spec)
    assert made["gpus_per_node"] == gpus
    assert said in " ".join(made["notes"])
    assert bool(made["notes"]) == bool(said)
    shown = server.people.get(f"/api/v1/jobs/{made['name']}").json()
    assert shown["gpus_per_node"] == gpus
    assert shown["instance_type"] == (spec.get("resources") or {}).get("instance_type")


def test_a_compute_has_a_default(server: Served) -> None:
    told = server.people.patch("/api/v1/computes/fake", json={"gpus_per_node": 3})
    assert told.json()["gpus_per_node"] == 3
    made = submitted(server, distribution=torch(2))
    assert made["gpus_per_node"] == 3
    assert "the default of the compute" in made["notes"][0]
    assert submitted(server, resources={"gpus_per_instance": 0})["gpus_per_node"] == 0
    assert submitted(server, resources={"instance_type": "p3.8xlarge"})["gpus_per_node"] == 4
    server.people.patch("/api/v1/computes/fake", json={"gpus_per_node": None})
    assert submitted(server)["gpus_per_node"] == 1


def test_the_map_of_instance_types_is_the_sites_to_change(server: Served) -> None:
    path = "/api/v1/instances/map"
    assert server.people.put(path, json={"dgx": 8, "Standard_NC6s_v3": 2}).status_code == 204
    found = server.people.get(path).json()
    assert found["own"] == {"dgx": 8, "Standard_NC6s_v3": 2}
    assert found["map"]["Standard_NC6s_v3"] == 2
    assert found["map"]["ml.g5.48xlarge"] == 8
    of = {"instance_type": "STANDARD_nc6s_v3"}
    assert submitted(server, resources=of)["gpus_per_node"] == 2
    assert server.people.put(path, json={"nc6s_V3": None, "dgx": None}).status_code == 204
    assert submitted(server, resources=of)["gpus_per_node"] == 1
    for bad in ({"": 1}, {"a b": 1}, {"x" * 64: 1}, {"a": -1}, {"a": "2"}, {"a": True}, {"a": 9e9}):
        assert server.people.put(path, json=bad).status_code == 422, bad
    assert server.people.get(path).json()["own"] == {}


@pytest.mark.medium
def test_a_cluster_that_answers_late_delays_one_submit_by_a_second(tmp_path: Path) -> None:
    Cluster.answer.clear()
    try:
        with served(tmp_path / "h", KIND) as server:
            began = time.monotonic()
            made = submitted(server)
            assert time.monotonic() - began < 20
            assert made["gpus_per_node"] == 0
            assert "does not report" in made["notes"][0]
            assert "--gpus G" in made["notes"][0]
            Cluster.answer.set()
            until(lambda: submitted(server)["gpus_per_node"] == 1)
    finally:
        Cluster.answer.set()


def test_a_cluster_that_cannot_be_asked_refuses_nothing(tmp_path: Path) -> None:
    with served(tmp_path / "h", FAKE._replace(make=Silent)) as server:  # type: ignore[arg-type]
        made = submitted(server)
        assert made["gpus_per_node"] == 0
        assert "does not report" in made["notes"][0]


def test_what_a_cluster_said_counts_for_a_while() -> None:
    asked: list[int] = []

    def ask() -> list[Host]:
        asked.append(1)
        return [Host("a", gpus=4), Host("b")]

    def never() -> list[Host]:
        asked.append(1)
        raise EngineError("no")

    known = HostGpus(patience=60)
    assert [known.of("a", ask) for _ in range(3)] == [(4, 0)] * 3
    assert len(asked) == 1
    assert [known.of("b", never) for _ in range(3)] == [None] * 3
    assert len(asked) == 2, "a cluster that does not answer is left alone for a while"


def test_of_many_clusters_the_latest_are_remembered() -> None:
    known, asked = HostGpus(patience=60), list[str]()

    def of(key: str) -> tuple[int, ...] | None:
        return known.of(key, lambda: [asked.append(key) or Host("a", gpus=1)])  # type: ignore[func-returns-value]

    for number in range(100):
        assert of(str(number)) == (1,)
    assert of("99") == (1,)
    assert len(asked) == 100
