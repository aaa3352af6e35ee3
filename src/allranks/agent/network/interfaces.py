"""Which network the ranks of a node use, and the variables that tell each library.

``interface`` and ``fabric`` read the system, ``explained`` and ``variables`` decide. Standard
library only, and for Python 3.7 on: agents import this, and ``allranks doctor --job`` sends it to
the nodes, where the job's own Python runs it.

Sources: NCCL's user guide (environment variables), torch.distributed, Horovod's gloo_context.cc,
Open MPI's FAQ on TCP (4.1) and PRRTE's prte_if_include (5), the Hydra wiki of MPICH, Intel MPI's
reference, fi_tcp(7), UCX's FAQ; rtnetlink(7); Linux's ABI/stable/sysfs-class-infiniband.
"""

from __future__ import annotations

import fcntl
import socket
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

SYS_CLASS = Path("/sys/class")
INFINIBAND = "InfiniBand"

# rtnetlink's numbers, <linux/netlink.h> and <linux/rtnetlink.h>.
_GET_ADDRESSES, _REQUEST, _DUMP, _ERROR, _DONE = 22, 0x1, 0x300, 2, 3
_ADDRESS, _LOCAL = 1, 2
_GET_MTU = 0x8921
# The loopback's index in every network namespace, <net/net_namespace.h>.
_LOOPBACK = 1


class Interface(NamedTuple):
    """A network interface and this node's ``address`` on it, with its prefix length.

    ``speed`` is in Mb/s, None if unknown (virtual interfaces). ``alike``: interfaces whose names
    begin with its name. ``together``: all peers are in the same network.
    """

    name: str
    address: str
    prefix: int
    speed: int | None = None
    mtu: int | None = None
    alike: tuple[str, ...] = ()
    together: bool = True

    @property
    def cidr(self) -> str:
        """Its network, as `10.1.0.0/16`."""
        return f"{_network(self.address, self.prefix)}/{self.prefix}"

    @property
    def loopback(self) -> bool:
        return self.address.startswith("127.") or self.address == "::1"


class Port(NamedTuple):
    """An active port of a host channel adapter; ``rate`` in Gb/s."""

    device: str
    port: int
    link_layer: str
    rate: float | None = None

    @property
    def name(self) -> str:
        """The name in the form of NCCL, UCX and others."""
        return f"{self.device}:{self.port}"


class Fabric(NamedTuple):
    """The RDMA ports of a node: active ones, and the names of inactive ones."""

    ports: tuple[Port, ...] = ()
    down: tuple[str, ...] = ()

    @property
    def infiniband(self) -> bool:
        return any(port.link_layer == INFINIBAND for port in self.ports)

    @property
    def best(self) -> tuple[Port, ...]:
        """The ports for jobs: InfiniBand if there is any. An Ethernet port beside InfiniBand
        usually leads outside the cluster, where RDMA does not work."""
        if not self.infiniband:
            return self.ports
        return tuple(port for port in self.ports if port.link_layer == INFINIBAND)


class Variable(NamedTuple):
    """A variable, its value, and the reason for the value."""

    name: str
    value: str
    why: str


# ---------------------------------------------------------------- looking


def interface(
    own_address: str, peers: Sequence[str], sys_class: Path = SYS_CLASS
) -> Interface | None:
    """The interface through which the kernel routes to the peers; without other peers, that of the
    node's own address. None if there is not exactly one.

    Sends nothing and resolves no names; addresses are numeric.
    """
    others = [peer for peer in dict.fromkeys(peers) if peer != own_address] or [own_address]
    try:
        names = dict(socket.if_nameindex())
        if all(address.startswith("127.") for address in (own_address, *others)):
            # All nodes are on this machine. Some have hundreds of addresses.
            addresses = [(_LOOPBACK, own_address, 8)]
            sources = [own_address]
        else:
            addresses = list(_addresses())
            sources = [source(peer) for peer in others]
    except (OSError, ValueError):
        return None
    of_address = {address: (index, prefix) for index, address, prefix in addresses}
    indexes = {of_address[each][0] for each in sources if each in of_address}
    if len(indexes) != 1 or any(each not in of_address for each in sources):
        return None
    index = indexes.pop()
    name = names.get(index)
    if name is None:
        return None
    address, prefix = sources[0], of_address[sources[0]][1]
    # All addresses of an interface are equivalent, and all of 127.0.0.0/8 belong to this machine
    # without being listed. An address that is not listed at all is translated (NAT).
    unlisted = _network(own_address, prefix) == _network(address, prefix) == "127.0.0.0"
    if unlisted or of_address.get(own_address, (None, 0))[0] == index:
        address, prefix = own_address, of_address.get(own_address, (index, prefix))[1]
    network = _network(address, prefix)
    return Interface(
        name,
        address,
        prefix,
        _speed(sys_class / "net" / name / "speed"),
        _mtu(name),
        tuple(sorted(n for n in names.values() if n != name and n.startswith(name))),
        all(_network(peer, prefix) == network for peer in others),
    )


def fabric(sys_class: Path = SYS_CLASS) -> Fabric | None:
    """The RDMA ports in /sys; None without an adapter."""
    up: list[Port] = []
    down: list[str] = []
    adapters = sys_class / "infiniband"
    if not adapters.is_dir():
        return None
    for place in sorted(adapters.glob("*/ports/*"), key=_in_order):
        device, number = place.parent.parent.name, place.name
        if not number.isdigit():
            continue
        state = _read(place / "state")
        if "ACTIVE" not in state.upper().replace("ACTIVE_DEFER", ""):
            down.append(f"{device}:{number}")
            continue
        # Drivers older than RoCE do not have this file.
        layer = _read(place / "link_layer") or INFINIBAND
        up.append(Port(device, int(number), layer, _rate(_read(place / "rate"))))
    return Fabric(tuple(up), tuple(down)) if up or down else None


def _in_order(place: Path) -> tuple[int, str, str]:
    device = place.parent.parent.name
    return len(device), device, place.name


def source(peer: str) -> str:
    """The source address for packets to ``peer``. Connecting a datagram socket looks up the route
    and sends nothing."""
    numeric = socket.AI_NUMERICHOST
    family, kind, proto, _, addr = socket.getaddrinfo(peer, 9, 0, socket.SOCK_DGRAM, 0, numeric)[0]
    with socket.socket(family, kind, proto) as asking:
        asking.connect(addr)
        return str(asking.getsockname()[0]).partition("%")[0]


def any_address() -> str:
    """An IPv4 address of this node that is not the loopback, if there is one."""
    addresses = [address for _, address, _ in _addresses() if ":" not in address]
    return next((address for address in addresses if not address.startswith("127.")), addresses[0])


def _addresses() -> Iterator[tuple[int, str, int]]:
    """Interface index, address and prefix length of all addresses of this machine.

    Read by rtnetlink, as `ip addr` does: the ioctls return one IPv4 address for each interface.
    """
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as asking:
        asking.settimeout(1.0)
        asking.bind((0, 0))
        asking.send(struct.pack("=IHHIIB3x", 20, _GET_ADDRESSES, _REQUEST | _DUMP, 1, 0, 0))
        while True:
            data = asking.recv(1 << 16)
            while data:
                size, kind = struct.unpack_from("=IH", data)
                if kind == _DONE:
                    return
                if kind == _ERROR:
                    raise OSError("the kernel does not list addresses")
                yield from _address(data[16:size])
                data = data[(size + 3) & ~3 :]


def _address(message: bytes) -> Iterator[tuple[int, str, int]]:
    family, prefix, _, _, index = struct.unpack_from("=BBBBI", message)
    if family not in (socket.AF_INET, socket.AF_INET6):
        return
    attributes: dict[int, bytes] = {}
    rest = message[8:]
    while len(rest) >= 4:
        size, kind = struct.unpack_from("=HH", rest)
        attributes[kind] = rest[4:size]
        rest = rest[(max(size, 4) + 3) & ~3 :]
    # On a point-to-point link, ADDRESS is that of the other end.
    raw = attributes.get(_LOCAL) or attributes.get(_ADDRESS)
    if raw:
        yield index, socket.inet_ntop(family, raw), prefix


def _network(address: str, prefix: int) -> str:
    plain = address.partition("%")[0]
    family = socket.AF_INET6 if ":" in plain else socket.AF_INET
    raw = socket.inet_pton(family, plain)
    bits = len(raw) * 8
    if prefix > bits:  # a peer of the other address family
        return plain
    mask = ((1 << prefix) - 1) << (bits - prefix)
    kept = int.from_bytes(raw, "big") & mask
    return socket.inet_ntop(family, kept.to_bytes(len(raw), "big"))


def _mtu(name: str) -> int | None:
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            request = struct.pack("16s16x", name.encode())
            return int(struct.unpack_from("16xi", fcntl.ioctl(asking, _GET_MTU, request))[0])
    except OSError:
        return None


def _speed(file: Path) -> int | None:
    text = _read(file)
    return int(text) if text.isdigit() and int(text) > 0 else None


def _rate(text: str) -> float | None:
    try:
        return float(text.split()[0])
    except (IndexError, ValueError):
        return None


def _read(file: Path) -> str:
    """The text of the file; for `4: ACTIVE` only the word."""
    try:
        return file.read_text().strip().rpartition(": ")[2]
    except (OSError, ValueError):  # EINVAL for virtual interfaces
        return ""


# ---------------------------------------------------------------- deciding


def variables(
    interface: Interface | None, fabric: Fabric | None, same_names: bool = True
) -> dict[str, str]:
    """The variables for the ranks of a node; the user's own override them. ``same_names``: the
    interface has the same name on every node."""
    return {variable.name: variable.value for variable in explained(interface, fabric, same_names)}


def explained(
    interface: Interface | None, fabric: Fabric | None, same_names: bool = True
) -> tuple[Variable, ...]:
    """The variables with their reasons. Pure."""
    variables: list[Variable] = []
    if interface is not None:
        variables += _of_interface(interface)
        if not interface.loopback:
            variables += _of_mpi(interface, same_names)
    if fabric is not None and fabric.ports:
        variables += _of_fabric(interface, fabric)
    elif interface is not None and not interface.loopback:
        why = "UCX tries every interface it finds"
        variables.append(Variable("UCX_NET_DEVICES", interface.name, why))
    return tuple(variables)


def _of_interface(interface: Interface) -> list[Variable]:
    name = interface.name
    # NCCL treats the name as a prefix; `=` makes it exact. Used only if necessary, because scripts
    # pass the value to libraries that do not know `=`.
    exact = f"={name}" if interface.alike else name
    reached = "it routes to the peers"
    if interface.loopback:
        reached = "all nodes are on this machine"
    clash = f"; `=`: not {', '.join(interface.alike)} too" if interface.alike else ""
    return [
        Variable("NCCL_SOCKET_IFNAME", exact, f"NCCL: {reached}{clash}"),
        Variable("GLOO_SOCKET_IFNAME", name, "gloo would use the interface of the host name"),
        Variable("TP_SOCKET_IFNAME", name, "torch.distributed.rpc, like gloo"),
        Variable("HOROVOD_GLOO_IFACE", name, "Horovod's gloo, like torch's"),
    ]


def _of_mpi(interface: Interface, same_names: bool) -> list[Variable]:
    """Variables for all MPIs, because it is not known here which one runs.

    None for the loopback: MPIs exclude it on purpose, and detect ranks on the same machine.
    """
    name, variables = interface.name, []
    # Open MPI's mpirun passes its own values to every node, so they must suit all nodes: the
    # network if all are in it (IPv4 only), else the name.
    by_network = interface.together and ":" not in interface.address
    if by_network or same_names:
        network = interface.cidr if by_network else name
        why = "Open MPI's messages: by default it tries bridges of containers too"
        variables.append(Variable("OMPI_MCA_btl_tcp_if_include", network, why))
    if same_names:
        # By name: the daemons also accept a network, but print a wrong warning if its interface is
        # the last one of the machine.
        variables.append(Variable("OMPI_MCA_oob_tcp_if_include", name, "Open MPI 4's daemons"))
        variables.append(Variable("PRTE_MCA_prte_if_include", name, "Open MPI 5's daemons"))
    return [
        *variables,
        Variable("HYDRA_IFACE", name, "MPICH's mpirun: an address, because names may not resolve"),
        Variable("I_MPI_HYDRA_IFACE", name, "Intel MPI's mpirun, like MPICH's"),
        Variable("FI_TCP_IFACE", name, "libfabric's TCP, under MPICH and Intel MPI"),
    ]


def _of_fabric(interface: Interface | None, fabric: Fabric) -> list[Variable]:
    names = [port.name for port in fabric.best]
    kind = INFINIBAND if fabric.infiniband else "RoCE"
    skipped = len(fabric.ports) - len(names)
    but = f", not the {skipped} of Ethernet" if skipped else ""
    down = f"; down: {', '.join(fabric.down)}" if fabric.down else ""
    # Also the interface, for a UCX that is built without verbs.
    devices = names + ([interface.name] if interface is not None else [])
    variables = [
        # `=`, because mlx5_1 would also match mlx5_10.
        Variable("NCCL_IB_HCA", "=" + ",".join(names), f"the active {kind} ports{but}{down}"),
        Variable("UCX_NET_DEVICES", ",".join(devices), f"UCX: the {kind} ports, else TCP"),
    ]
    if interface is None or not interface.loopback:
        # For nodes on one machine, the launcher chooses Open MPI's transports.
        why = "Open MPI 4's old verbs layer: UCX drives these ports"
        variables.append(Variable("OMPI_MCA_btl", "^openib", why))
    return variables
