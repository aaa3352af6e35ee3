"""Which interface, which InfiniBand ports, and what each library is told of them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from allranks.agent.network import interfaces
from allranks.agent.network import ports as ports_
from allranks.agent.network.interfaces import Fabric, Interface, Port
from tests.agent.namespaces import hosts

ASK = """
import json, sys
from pathlib import Path
from allranks.agent.network import interfaces as network
found = network.interface(sys.argv[1], sys.argv[2:])
print(json.dumps(found and {**found._asdict(), "cidr": found.cidr}))
"""

ETH = Interface("eth0", "10.1.2.3", 16, 100_000, 9000)
LO = Interface("lo", "127.0.0.2", 8)


def ports(sys_class: Path, **given: tuple[str, str, str]) -> None:
    """`mlx5_0=(state, layer, rate)` as the kernel shows it."""
    for device, (state, layer, rate) in given.items():
        folder = sys_class / "infiniband" / device / "ports" / "1"
        folder.mkdir(parents=True)
        for name, text in (("state", state), ("link_layer", layer), ("rate", rate)):
            (folder / name).write_text(text + "\n")


ACTIVE, DOWN = "4: ACTIVE", "1: DOWN"
NDR, HDR = "400 Gb/sec (4X NDR)", "200 Gb/sec (4X HDR)"


def test_nodes_of_one_machine_meet_on_loopback() -> None:
    found = interfaces.interface("127.0.0.2", ["127.0.0.2", "127.0.0.3"])
    assert found is not None
    assert (found.name, found.address, found.cidr) == ("lo", "127.0.0.2", "127.0.0.0/8")
    assert found.mtu
    assert found.together


def test_a_node_alone_has_the_interface_of_its_own_address() -> None:
    found = interfaces.interface("127.0.0.2", ["127.0.0.2"])
    assert found is not None
    assert found.name == "lo"


@pytest.mark.parametrize("peer", ["no.such.host", "", "256.1.1.1"])
def test_no_name_is_looked_up(peer: str) -> None:
    assert interfaces.interface("127.0.0.2", [peer]) is None


@pytest.mark.medium
def test_the_route_to_the_peers_decides() -> None:
    with hosts(2) as made:
        for name, address in (("docker0", "198.19.0.1/16"), ("eth10", "198.18.9.1/24")):
            made.add(0, name)
            made.ip(0, "addr", "add", address, "dev", name)
        made.ip(0, "link", "set", "eth1", "mtu", "1400")
        found = made.python(0, ASK, "198.18.0.1", "198.18.0.1", "198.18.0.2")
        assert (found["name"], found["cidr"], found["mtu"]) == ("eth1", "198.18.0.0/24", 1400)
        assert found["alike"] == ["eth10"]
        assert found["together"]
        assert made.python(0, ASK, "198.18.0.1", "198.19.0.7")["name"] == "docker0"
        # An address that is translated on its way to us is none of ours.
        assert made.python(0, ASK, "203.0.113.9", "198.18.0.2")["address"] == "198.18.0.1"
        # No single interface leads to all of them, and none to the last.
        assert made.python(0, ASK, "198.18.0.1", "198.18.0.2", "198.19.0.7") is None
        assert made.python(0, ASK, "198.18.0.1", "203.0.113.9") is None
        made.ip(0, "route", "add", "203.0.113.0/24", "via", "198.18.0.2")
        assert not made.python(0, ASK, "198.18.0.1", "198.18.0.2", "203.0.113.9")["together"]


def test_second_addresses_point_to_point_links_and_ipv6() -> None:
    with hosts(2) as made:
        made.ip(0, "addr", "add", "198.18.5.1/24", "dev", "eth1")
        found = made.python(0, ASK, "198.18.5.1", "198.18.5.2")
        assert (found["name"], found["cidr"]) == ("eth1", "198.18.5.0/24")
        made.add(0, "tun9")
        made.ip(0, "addr", "add", "198.18.7.1", "peer", "198.18.7.2/32", "dev", "tun9")
        found = made.python(0, ASK, "198.18.7.1", "198.18.7.2")
        assert (found["name"], found["address"]) == ("tun9", "198.18.7.1")
        for host in (0, 1):
            address = f"2001:2::{host + 1}/48"
            made.ip(host, "addr", "add", address, "dev", "eth1", "nodad")
        found = made.python(0, ASK, "2001:2::1", "2001:2::2")
        assert (found["name"], found["cidr"]) == ("eth1", "2001:2::/48")


def test_speed_is_none_where_nobody_knows(tmp_path: Path) -> None:
    place = tmp_path / "net" / "lo"
    place.mkdir(parents=True)
    for text, speed in (("25000", 25000), ("-1", None), ("0", None), ("", None)):
        (place / "speed").write_text(text + "\n")
        found = interfaces.interface("127.0.0.2", [], tmp_path)
        assert found is not None
        assert found.speed == speed


# ---------------------------------------------------------------- InfiniBand


def test_only_active_ports_count_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    given = {f"mlx5_{n}": (ACTIVE, "InfiniBand", NDR) for n in (10, 2, 0)}
    ports(tmp_path, mlx5_1=(DOWN, "InfiniBand", "10 Gb/sec (4X)"), **given)
    found = interfaces.fabric(tmp_path)
    assert found is not None
    assert [port.name for port in found.ports] == ["mlx5_0:1", "mlx5_2:1", "mlx5_10:1"]
    assert (found.down, found.ports[0].rate) == (("mlx5_1:1",), 400.0)


def test_without_an_adapter_there_is_no_fabric(tmp_path: Path) -> None:
    assert interfaces.fabric(tmp_path) is None
    (tmp_path / "infiniband").mkdir()
    assert interfaces.fabric(tmp_path) is None


def test_half_written_sysfs_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "infiniband" / "hfi1_0" / "ports" / "1").mkdir(parents=True)
    found = interfaces.fabric(tmp_path)
    assert found == Fabric((), ("hfi1_0:1",))
    assert interfaces.variables(None, found) == {}


def test_infiniband_is_told_to_nccl_ucx_and_open_mpi(tmp_path: Path) -> None:
    ports(tmp_path, mlx5_0=(ACTIVE, "InfiniBand", HDR), mlx5_1=(ACTIVE, "InfiniBand", HDR))
    found = interfaces.variables(ETH, interfaces.fabric(tmp_path))
    assert found["NCCL_IB_HCA"] == "=mlx5_0:1,mlx5_1:1"
    assert found["UCX_NET_DEVICES"] == "mlx5_0:1,mlx5_1:1,eth0"
    assert found["OMPI_MCA_btl"] == "^openib"
    assert found["NCCL_SOCKET_IFNAME"] == "eth0"
    on_loopback = interfaces.variables(LO, interfaces.fabric(tmp_path))
    assert on_loopback["UCX_NET_DEVICES"] == "mlx5_0:1,mlx5_1:1,lo"
    assert not [name for name in on_loopback if name.startswith("OMPI")]


def test_ethernet_beside_infiniband_is_left_alone(tmp_path: Path) -> None:
    """As on clouds, where the machine's own network card shows up as an adapter."""
    ports(tmp_path, mlx5_an0=(ACTIVE, "Ethernet", HDR), mlx5_ib0=(ACTIVE, "InfiniBand", NDR))
    assert interfaces.variables(ETH, interfaces.fabric(tmp_path))["NCCL_IB_HCA"] == "=mlx5_ib0:1"


def test_roce_alone_is_used(tmp_path: Path) -> None:
    ports(tmp_path, rocep1s0=(ACTIVE, "Ethernet", HDR))
    (hca,) = (v for v in interfaces.explained(ETH, interfaces.fabric(tmp_path)) if "HCA" in v.name)
    assert (hca.value, "RoCE" in hca.why) == ("=rocep1s0:1", True)


# ---------------------------------------------------------------- variables


def test_on_loopback_only_what_does_not_break() -> None:
    assert interfaces.variables(LO, None) == {
        "NCCL_SOCKET_IFNAME": "lo",
        "GLOO_SOCKET_IFNAME": "lo",
        "TP_SOCKET_IFNAME": "lo",
        "HOROVOD_GLOO_IFACE": "lo",
    }


def test_nccl_takes_prefixes_and_gloo_names() -> None:
    found = interfaces.variables(ETH._replace(alike=("eth0.100",)), None)
    assert (found["NCCL_SOCKET_IFNAME"], found["GLOO_SOCKET_IFNAME"]) == ("=eth0", "eth0")
    assert interfaces.variables(ETH, None)["NCCL_SOCKET_IFNAME"] == "eth0"


def test_open_mpi_is_told_what_holds_on_every_node() -> None:
    messages, daemons = "OMPI_MCA_btl_tcp_if_include", "PRTE_MCA_prte_if_include"
    found = interfaces.variables(ETH, None)
    assert (found[messages], found[daemons]) == ("10.1.0.0/16", "eth0")
    # A cloud's /32, peers behind a router, IPv6: no network that all are in.
    assert interfaces.variables(ETH._replace(together=False), None)[messages] == "eth0"
    assert (
        interfaces.variables(ETH._replace(address="fd00::1", prefix=64), None)[messages] == "eth0"
    )
    others = interfaces.variables(ETH, None, same_names=False)
    assert (others[messages], daemons in others) == ("10.1.0.0/16", False)
    apart = interfaces.variables(ETH._replace(together=False), None, same_names=False)
    assert not [name for name in apart if name.startswith(("OMPI", "PRTE"))]


def test_every_variable_has_a_value_and_a_reason() -> None:
    fabric = Fabric((Port("mlx5_0", 1, "InfiniBand", 400.0),), ("mlx5_1:1",))
    for interface in (None, LO, ETH):
        for each in interfaces.explained(interface, fabric):
            assert each.value
            assert 5 < len(each.why) < 80
        names = [each.name for each in interfaces.explained(interface, fabric)]
        assert len(names) == len(set(names))
    assert interfaces.explained(None, None) == ()


def test_it_weighs_nothing() -> None:
    """The agent starts in milliseconds: nothing heavy comes with it."""
    code = "import sys, allranks.agent.network.interfaces; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert not {"asyncio", "ctypes", "dataclasses", "subprocess", "json"} & {*loaded}


# ---------------------------------------------------------------- the real library

GLOO = """
import json, os, sys
from allranks.agent.network import interfaces as network
os.environ.update(network.variables(network.interface(sys.argv[1], sys.argv[2:]), None))
import torch, torch.distributed as dist
dist.init_process_group("gloo", init_method="env://")
one = torch.ones(1)
dist.all_reduce(one)
print(json.dumps([os.environ["GLOO_SOCKET_IFNAME"], one.item()]))
"""


def meet(addresses: list[str], argvs: list[list[str]], port: str) -> list[Any]:
    """What a rank at each address prints after adding ones up with gloo."""
    shared = {**os.environ, "MASTER_ADDR": addresses[0], "MASTER_PORT": port, "WORLD_SIZE": "2"}
    started = [
        subprocess.Popen(
            [*argv, "-c", GLOO, addresses[rank], *addresses],
            env={**shared, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank, argv in enumerate(argvs)
    ]
    return [json.loads(each.communicate(timeout=90)[0].splitlines()[-1]) for each in started]


@pytest.mark.torch
@pytest.mark.slow
def test_gloo_meets_on_loopback_and_between_hosts() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    (held,) = found = ports_.hold(1)
    port = str(held.getsockname()[1])
    ports_.release(found)
    assert meet(["127.0.0.2", "127.0.0.3"], [[sys.executable]] * 2, port) == [["lo", 2.0]] * 2
    with hosts(2) as made:
        # Without being told, gloo takes the address of the host's name: here nobody's.
        for host in (0, 1):
            made.add(host, "docker0")
            made.ip(host, "addr", "add", "198.19.0.1/16", "dev", "docker0")
        argvs = [made.argv(host, sys.executable) for host in (0, 1)]
        assert meet(["198.18.0.1", "198.18.0.2"], argvs, "29500") == [["eth1", 2.0]] * 2
