"""What every engine promises, held against those that need no cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from allranks.engines.base import Handle
from allranks.engines.fake import FakeEngine
from allranks.engines.kubernetes.engine import KubernetesEngine
from allranks.engines.local.capacity import Capacity
from allranks.engines.local.end_gang import marked
from allranks.engines.local.engine import LocalEngine
from tests.engines.contract import Case, Contract, sleeper
from tests.engines.kubernetes import api_server
from tests.engines.processes import kill


class TestTheFakeEngine(Contract):
    @pytest.fixture
    def case(self) -> Case:
        fake = FakeEngine(nodes=4)
        return Case(fake, sleeper("job.1"), lambda: fake, list, of_node=0)


class TestTheLocalEngine(Contract):
    @pytest.fixture
    def case(self, tmp_path: Path) -> Iterator[Case]:
        gang = sleeper(f"{tmp_path.name}.1")

        def local() -> LocalEngine:
            room = Capacity(4, 2, 2.0, 1 << 30)
            return LocalEngine(tmp_path / "engine", tmp_path / "nodes", room)

        engine = local()

        def processes() -> list[int]:
            return marked(engine.mark(gang.key), Path("/nowhere"))

        yield Case(engine, gang, local, processes)
        kill(engine, gang.key)
        engine.stop(Handle(gang.key))
        assert processes() == []


class TestTheKubernetesEngine(Contract):
    """At an API server without nodes: its pods are objects that say that they run."""

    @pytest.fixture
    def case(self, tmp_path: Path) -> Iterator[Case]:
        with api_server.running() as server:
            options = api_server.kubeconfig(tmp_path, server)
            needs = {"image": "trainer", "home_volume": "host"}

            def made() -> KubernetesEngine:
                engine = tmp_path / "engines" / "kubernetes"
                return KubernetesEngine(tmp_path, engine, tmp_path / "nodes", options)

            gang = sleeper(f"{tmp_path.name}.1")._replace(options=needs)
            yield Case(made(), gang, made, lambda: server.of("pods"))
