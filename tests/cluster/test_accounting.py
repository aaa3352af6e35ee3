"""A Slurm with accounting (slurmdbd, MariaDB): what it enforces, and what it remembers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from allranks.core.plan import Gang
from allranks.engines.base import OF, Handle
from allranks.engines.slurm.engine import SlurmEngine
from allranks.errors import Refused
from tests.cluster.conftest import NEEDS, PATH, Cluster, environment_of, number_of
from tests.engines.contract import sleeper
from tests.support import until

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(800)]
ALSO = (*NEEDS, "slurmdbd", "mariadbd")


@pytest.fixture(scope="module")
def accounted(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[Cluster]:
    """One host; nobody runs anything without an account. There is `science`, and it is root's."""
    missing = [name for name in ALSO if shutil.which(name, path=PATH) is None]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"a Slurm with accounting needs root and {', '.join(missing or ALSO)}")
    state = tmp_path_factory.mktemp("accounted")
    (state / "extra").write_text("AccountingStorageEnforce=associations,limits,qos\n")
    env = environment_of(state, number_of("accounted", worker_id))
    found = Cluster({**env, "CLUSTER_DBD": "1", "CLUSTER_EXTRA_CONF": str(state / "extra")})
    found("up", 1)
    for words in (
        ("add", "account", "science"),
        ("modify", "user", "root", "set", "qos=normal", "defaultqos=normal"),
        ("add", "user", "root", "account=science", "qos=normal", "defaultqos=normal"),
    ):
        found.slurm("sacctmgr", "--immediate", *words)
    yield found
    found("down")


@pytest.fixture
def engine(accounted: Cluster, tmp_path: Path) -> SlurmEngine:
    return SlurmEngine(tmp_path / "engine", tmp_path / "nodes", accounted.env["SLURM_CONF"])


@pytest.fixture
def gang(tmp_path: Path) -> Gang:
    options = {"partition": "main", "account": "science"}
    return sleeper(f"{tmp_path.name}.1")._replace(nodes=1, options=options)


@pytest.mark.parametrize(
    ("options", "said"),
    [({"account": "nobodys"}, "Invalid account"), ({"qos": "urgent"}, "Invalid qos")],
)
def test_what_is_not_ones_own_is_refused_in_words(engine, gang, options, said):
    with pytest.raises(Refused, match=said) as caught:
        engine.admit(gang._replace(options={**gang.options, **options}))
    assert "sacctmgr show assoc" in caught.value.hint


def test_what_the_controller_has_forgotten_is_found_in_the_accounts(engine, gang):
    env = {**gang.env, OF: "anna b"}
    handle = engine.submit(gang._replace(argv=("/bin/false",), env=env))
    accounted_name = f"{gang.key}@anna_b"
    assert engine._run("squeue", "--noheader", "--states=all", "--format=%j").split()[-1] == (
        accounted_name
    ), "whose job it is"
    until(lambda: engine.poll([handle])[gang.key].state == "gone", 40)
    until(lambda: engine._from_accounting([handle])[gang.key].why == "Slurm: its script failed", 40)
    stopped = engine.submit(gang._replace(key=f"{gang.key}1"))
    until(lambda: engine.poll([stopped])[stopped.key].state == "up", 40)
    engine.stop(stopped)
    # `CANCELLED by 0` there, where squeue has the word alone.
    until(lambda: engine._from_accounting([stopped])[stopped.key].reason == "CANCELED", 40)
    # A job's number alone is no identity, nor is its name.
    other = Handle("another.1", handle.ref)
    assert engine._from_accounting([other])[other.key].why == "Slurm: it is no longer in the queue"
