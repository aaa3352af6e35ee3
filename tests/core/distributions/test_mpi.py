"""What mpirun is told, for each implementation."""

import pytest

from allranks.core.distributions import mpi, ray
from allranks.core.plan import Place, Task

HYDRA = "HYDRA build details:\n    Version:                                 5.0.2\n    Release"
INTEL = (
    "Intel(R) MPI Library for Linux* OS, Version 2021.13 Build 20240701 (id: 179630a)\nCopyright"
)


@pytest.mark.parametrize(
    ("said", "kind", "version"),
    [
        ("mpirun (Open MPI) 4.1.4\n\nReport bugs to http://…", "openmpi", "4.1.4"),
        ("mpirun (Open MPI) 5.0.11\n", "openmpi", "5.0.11"),
        (HYDRA, "mpich", "5.0.2"),
        (INTEL, "intel", "2021.13"),
    ],
)
def test_a_launcher_is_known_by_what_it_says_of_itself(said: str, kind: str, version: str):
    assert mpi.recognised("/bin/mpirun", said) == mpi.Mpi(kind, version, "/bin/mpirun")


@pytest.mark.parametrize("said", ["", "\n", "usage: mpirun", "srun 22.05"])
def test_what_is_no_launcher_is_none(said: str):
    assert mpi.recognised("/bin/mpirun", said) is None


def test_open_mpi_starts_so_many_on_each_node():
    found = mpi.Mpi("openmpi", "5.0.11", "/e/mpirun")
    words = mpi.words(found, mpi.hosts(["alpha", "beta"]), 3, ["shim", "x"], root=True)
    assert " ".join(words) == (
        "/e/mpirun --allow-run-as-root --host alpha:3,allranks-node-1:3 --map-by slot "
        "--bind-to none -np 6 shim x"
    )
    assert "--allow-run-as-root" not in mpi.words(
        found, mpi.hosts(["alpha", "beta"]), 3, ["x"], root=False
    )


def test_mpich_hands_no_variables_of_node_0_on():
    found = mpi.Mpi("mpich", "5.0.2", "/e/mpiexec")
    words = mpi.words(found, mpi.hosts(["alpha", "beta"]), 1, ["shim"], root=True)
    hosts = "alpha:1,allranks-node-1:1"
    assert words == ["/e/mpiexec", "-genvnone", "-hosts", hosts, "-np", "2", "shim"]


def test_each_is_told_of_the_program_in_place_of_ssh():
    openmpi = mpi.variables(mpi.Mpi("openmpi", "4.1.4", "m"), "/t/remote")
    assert openmpi["OMPI_MCA_plm_rsh_agent"] == openmpi["PRTE_MCA_plm_ssh_agent"] == "/t/remote"
    mpich = mpi.variables(mpi.Mpi("mpich", "5.0.2", "m"), "/t/remote")
    assert mpich["HYDRA_LAUNCHER_EXEC"] == "/t/remote"


def test_nodes_that_share_a_host_are_one_host_to_mpi():
    assert mpi.hosts(["a", "a", "b", "c"]) == [
        ("a", 0, 2),
        ("allranks-node-2", 2, 1),
        ("allranks-node-3", 3, 1),
    ]
    found = mpi.Mpi("openmpi", "5.0.11", "mpirun")
    words = mpi.words(found, mpi.hosts(["a", "a"]), 2, ["shim"], root=False)
    assert words[:3] == ["mpirun", "--host", "a:4"]


def test_a_host_whose_nodes_are_apart_is_refused():
    with pytest.raises(ValueError, match="node 2 is on a, as an earlier one"):
        mpi.hosts(["a", "b", "a"])


def test_words_of_the_users_own_for_ray():
    more = {"head_node_additional_args": "--num-gpus 1 --resources '{\"x\": 1}'"}
    more["worker_node_additional_args"] = "--num-gpus 2"
    task = Task("j", "e", "true", nodes=2, distribution="ray", options=more)
    places = [Place("10.0.0.1", "a", (7000, 7001), "", 4), Place("10.0.0.2", "b", (), "", 8)]
    head, worker = (ray.start(task, node, places, "/t", 1 << 30) for node in (0, 1))
    assert head[-4:] == ["--num-gpus", "1", "--resources", '{"x": 1}']
    assert worker[-2:] == ["--num-gpus", "2"]


def test_a_ray_head_and_its_worker():
    task = Task("j", "e", "true", nodes=2, distribution="ray")
    places = [Place("10.0.0.1", "a", (7000, 7001), "", 4), Place("10.0.0.2", "b", (), "", 8)]
    head = ray.start(task, 0, places, "/t/x", 1 << 30)
    worker = ray.start(task, 1, places, "/t/x", 1 << 30)
    assert head[:5] == [
        "start",
        "--block",
        "--disable-usage-stats",
        "--node-ip-address",
        "10.0.0.1",
    ]
    assert head[-6:-3] == ["--head", "--port", "7000"]
    assert head[-2:] == ["--temp-dir", "/t/x"]
    assert "--num-cpus=8" in worker
    assert worker[-2:] == ["--address", "10.0.0.1:7000"]
    assert not any("object-store" in word for word in head)


def test_ray_nodes_that_share_a_machine_share_its_memory():
    task = Task("j", "e", "true", nodes=2, distribution="ray")
    places = [Place("127.0.0.2", "a", (7000, 7001)), Place("127.0.0.3", "a")]
    assert "--object-store-memory=1500000000" in ray.start(task, 1, places, "/t", 10**10)
    assert "--object-store-memory=80000000" in ray.start(task, 1, places, "/t", 10**8)
