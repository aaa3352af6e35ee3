"""A training loop, simulated: what is slow in it is known, and its record is all that is told.

Each rank has a loader of some workers that reads ahead by two batches a worker, computes, and then
waits for the others and the exchange. What each does when is kept as stretches of time; monitors
look at those every so often, as real ones do.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from allranks.core.insights.job_facts import Facts, Point, Series

GIB = float(1 << 30)
LIMIT = 700.0
START = 1_000_000.0


class Loop(NamedTuple):
    """Seconds a batch takes to load by one worker, to compute, to exchange. ``slow`` and ``far``
    are ranks of which the computing, or the loading, takes ``times`` as long. ``spins``: who waits
    for others looks busy. ``ahead``: the host does not wait for its GPU. ``stolen``: the part of
    the processors that others on the machine take. ``fills``: the memory is full from the middle
    on, and what computes is swapped in. ``leaks``: steps take longer and longer. ``pauses``: a
    checkpoint is written after every so many steps, for as long as those."""

    nodes: int = 1
    procs: int = 1
    gpus: int = 0
    load: float = 0.05
    workers: int = 2
    compute: float = 0.3
    exchange: float = 0.0
    noise: float = 0.1
    slow: int | None = None
    far: int | None = None
    times: float = 1.0
    before_exchange: bool = False
    spins: bool = True
    ahead: bool = False
    stolen: float = 0.0
    python: float = 0.0
    memory: float = 0.4
    fills: bool = False
    leaks: bool = False
    pauses: int = 0
    steps: int = 400
    every: int = 5
    averaged: bool = False
    telling: int | None = None
    distribution: str = "pytorch"
    scale: float = 1.0
    cpus: int = 16
    power: bool = True
    uneven: bool = False


class _Rank:
    """What a rank does, and when its workers have which batch."""

    def __init__(self, loop: Loop, rank: int, chance: random.Random) -> None:
        self.loop, self.chance = loop, chance
        self.load = loop.load * (loop.times if rank == loop.far else 1.0)
        self.compute = loop.compute * (loop.times if rank == loop.slow else 1.0)
        self.free = [0.0] * loop.workers
        self.taken: list[float] = []
        self.did: list[tuple[float, float, str]] = []
        self.now = 0.0
        self.told: list[tuple[float, float, float]] = []

    def about(self, seconds: float) -> float:
        return max(0.1 * seconds, self.chance.gauss(seconds, self.loop.noise * seconds))

    def step(self, number: int, factor: float, swap: float) -> float:
        """Load and compute; when it came to the exchange."""
        self.began = self.now
        worker, depth = number % self.loop.workers, 2 * self.loop.workers
        room = self.taken[number - depth] if number >= depth else 0.0
        begin = max(self.free[worker], room)
        self.free[worker] = begin + self.about(self.load)
        self._do("load", begin, self.free[worker])
        ready = max(self.now, self.free[worker])
        self._do("data", self.now, ready)
        self.data, self.taken = ready - self.now, [*self.taken, ready]
        thought = ready + self.loop.python * self.loop.compute
        self._do("python", ready, thought)
        self._do("compute", thought, thought + self.about(self.compute * factor))
        swapped = self.did[-1][1]
        self.now = swapped + self.about(self.compute * swap)
        self._do("swap", swapped, self.now)
        return self.now

    def exchanged(self, end: float, saved: float) -> None:
        """All have exchanged; then nothing is done for ``saved`` seconds but to write."""
        self._do("wait", self.now, end)
        own = self.now - self.began
        self.now = end + saved
        step = own if self.loop.before_exchange else self.now - self.began
        self.told.append((self.now, step, self.data))

    def _do(self, what: str, begin: float, end: float) -> None:
        if end > begin:
            self.did.append((begin, end, what))


def simulate(loop: Loop, seed: int = 0) -> Facts:
    """The record of that loop."""
    chance = random.Random(seed)
    world = loop.nodes * loop.procs
    ranks = [_Rank(loop, rank, chance) for rank in range(world)]
    full_at = None
    for number in range(loop.steps):
        swaps = loop.fills and number > loop.steps // 2
        factor = 1.0 + (3.0 * number / loop.steps if loop.leaks else 0.0)
        if swaps and full_at is None:
            full_at = ranks[0].now
        arrived = [rank.step(number, factor, 3.0 * swaps) for rank in ranks]
        end = max(arrived) + (ranks[0].about(loop.exchange) if loop.exchange else 0.0)
        if loop.pauses and number % loop.pauses == loop.pauses - 1:
            saved = loop.pauses * loop.compute
        else:
            saved = 0.0
        for rank in ranks:
            rank.exchanged(end, saved)
    long = max(rank.now for rank in ranks)
    told = [loop.telling] if loop.telling is not None else range(world)
    metrics = [each for rank in told for each in _metrics(loop, rank, ranks[rank])]
    if loop.uneven:
        metrics += [_counted(loop, rank) for rank in range(world)]
    resources = _resources(loop, ranks, long, full_at, chance)
    return Facts(
        "job",
        nodes=loop.nodes,
        ranks=world,
        gpus=loop.gpus,
        cpus=(loop.cpus,) * loop.nodes,
        hosts=tuple(f"host{node}" for node in range(loop.nodes)),
        distribution=loop.distribution if world > 1 else "none",
        created_at=START - 60 * loop.scale,
        started_at=START,
        ranks_ended_at=START + long * loop.scale,
        ended_at=START + (long + 5) * loop.scale,
        metrics=tuple(metrics),
        resources=tuple(resources),
    )


def _metrics(loop: Loop, rank: int, did: _Rank) -> list[Series]:
    """Every so many steps: the values of that step, or the means of all so far."""
    found: dict[str, list[Point]] = {"batch_time": [], "data_time": []}
    for number in range(0, len(did.told), loop.every):
        of = did.told[: number + 1] if loop.averaged else did.told[number : number + 1]
        at = START + did.told[number][0] * loop.scale
        for name, index in (("batch_time", 1), ("data_time", 2)):
            value = loop.scale * sum(each[index] for each in of) / len(of)
            found[name].append(Point(at, value, number))
    return [Series(name, tuple(points), rank=rank) for name, points in found.items()]


def _counted(loop: Loop, rank: int) -> Series:
    each = 100.0 * (loop.times if rank == loop.slow else 1.0)
    points = tuple(Point(START + i, each * (i + 1), i) for i in range(30))
    return Series("samples", points, rank=rank)


def _resources(
    loop: Loop, ranks: list[_Rank], long: float, full_at: float | None, chance: random.Random
) -> list[Series]:
    """Looked at two hundred times, each time over what was since the last."""
    every = long / 200
    series: dict[tuple[str, int | None, int | None, int | None], list[Point]] = {}
    shares = [_shares(rank.did, every, 200) for rank in ranks]
    threads = 0 if loop.gpus else loop.cpus // loop.procs
    for index in range(200):
        at = START + (index + 1) * every * loop.scale

        def add(name, value, *, node=None, gpu=None, rank=None, at=at):
            series.setdefault((name, node, gpu, rank), []).append(Point(at, value))

        full = full_at is not None and (index + 1) * every > full_at
        for node in range(loop.nodes):
            cores = loop.stolen * loop.cpus
            for local in range(loop.procs):
                rank = node * loop.procs + local
                does = shares[rank][index]
                of_rank = threads * does["compute"] + does["python"] + does["load"]
                of_rank += does["wait"] * threads * (not loop.gpus and loop.spins)
                add("cpu", 100 * of_rank, rank=rank)
                cores += of_rank
                if loop.gpus:
                    busy = does["compute"] + does["wait"] * loop.spins
                    busy = 0.97 if loop.ahead else busy
                    add("gpu_load", 100 * min(1.0, busy), node=node, gpu=local)
                    drawn = 0.9 * does["compute"] + 0.4 * does["wait"] + 0.1
                    if loop.power:
                        add("gpu_power", LIMIT * min(1.0, drawn), node=node, gpu=local)
                        add("gpu_power_limit", LIMIT, node=node, gpu=local)
            add("node_cpu", min(100.0, 100 * cores / loop.cpus), node=node)
            own = cores - loop.stolen * loop.cpus
            add("cpu", min(100.0, 100 * own / loop.cpus), node=node)
            share = loop.memory
            if loop.fills:
                share = 0.97 if full else 0.3 + 0.55 * index / 200
            add("node_memory", share * 64 * GIB, node=node)
            add("memory", 0.2 * 64 * GIB, node=node)
            add("node_memory_total", 64 * GIB, node=node)
            add("memory_total", 64 * GIB, node=node)
            disk = (400e6 if full else 20e6) / loop.scale
            add("node_disk_read", chance.uniform(0.8, 1.2) * disk, node=node)
    return [
        Series(name, tuple(points), rank=rank, node=node, gpu=gpu)
        for (name, node, gpu, rank), points in series.items()
    ]


def _shares(
    did: list[tuple[float, float, str]], every: float, count: int
) -> list[dict[str, float]]:
    """For each look, how much of the time (of a core, for what loads) went into what."""
    names = ("data", "compute", "wait", "load", "python", "swap")
    found = [dict.fromkeys(names, 0.0) for _ in range(count)]
    for begin, end, what in did:
        for index in range(int(begin / every), min(count, int(end / every) + 1)):
            over = min(end, (index + 1) * every) - max(begin, index * every)
            if over > 0:
                found[index][what] += over / every
    return found
