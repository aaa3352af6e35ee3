"""A record restored from a backup, of any moment, and agents that know more: it catches up."""

import pytest

from allranks.core.lifecycle import decide as policy
from allranks.core.lifecycle.agent_orders import accepted, is_ahead
from allranks.core.lifecycle.decide import Clock, Job, decide
from allranks.core.lifecycle.fold import fold
from allranks.core.plan import Rules
from allranks.events import FROM_AGENTS, Event, Kind
from allranks.statuses import TERMINAL, VERDICTS, GangState, JobStatus, Reason
from tests.core.model import order

NODES, RULES = 2, Rules(2, max_attempts=2)
PLACE = {"address": "10.0.0.1", "host": "a", "ports": [7000]}


class Gang:
    """What the agents have said in all, whatever any server has heard of it."""

    def __init__(self) -> None:
        self.said: list[list[Event]] = [[] for _ in range(NODES)]
        self.now = 0.0

    def say(self, node: int, kind: Kind, attempt: int, **data: object) -> None:
        self.now += 1.0
        seq = len(self.said[node]) + 1
        self.said[node].append(Event(kind, self.now, 1, attempt, node, seq=seq, data=data))

    def life(self) -> None:
        """Node 1 fails; both try once more in the same launch and are done."""
        for node in range(NODES):
            for kind in (Kind.HELLO, Kind.READY, Kind.STARTED):
                self.say(node, kind, 1, **(PLACE if kind is Kind.READY else {}))
        self.say(1, Kind.ENDED, 1, reason=Reason.RANK_EXITED, code=3)
        self.say(0, Kind.ENDED, 1, reason=Reason.PEER_FAILED)
        for node in range(NODES):
            self.say(node, Kind.DRAINED, 1)
        for node in range(NODES):
            self.say(node, Kind.READY, 2, **PLACE)
            self.say(node, Kind.STARTED, 2)
        for node in range(NODES):
            self.say(node, Kind.ENDED, 2, reason=Reason.DONE)
            self.say(node, Kind.DRAINED, 2)
            self.say(node, Kind.BYE, 2)


def told(job: Job, kind: Kind, **data: object) -> Event:
    return Event(kind, 99.0, job.launch, job.attempt, data=data)


def catch_up(job: Job, gang: Gang, most: int) -> list[Job]:
    """Every record from ``job`` on, with agents that have said ``most`` things each so far."""
    past = [job]
    for _ in range(200):
        for node in range(NODES):
            rest = gang.said[node][job.nodes[node].seq : most]
            for event in accepted(job, node, 1, rest)[:1]:
                job = fold(job, event)
                past.append(job)
        step = decide(job, RULES, Clock(now=99.0))
        if step is not None:
            data = dict(step.data)
            if step.event is Kind.FINISHED:
                data = {"status": VERDICTS[policy.outcome(job).reason].outcome}
            job = fold(job, told(job, step.event, **data))
            if step.event is Kind.SUBMITTED:
                job = fold(job, told(job, Kind.SEEN, state=GangState.UP, why=""))
            past.append(job)
        if job.status in TERMINAL:
            break
    return past


@pytest.fixture(scope="module")
def gang() -> Gang:
    found = Gang()
    found.life()
    return found


@pytest.fixture(scope="module")
def moments(gang: Gang) -> list[Job]:
    return catch_up(policy.new(NODES), gang, 99)


def test_the_life_itself(moments: list[Job]):
    assert (moments[-1].status, moments[-1].attempt) == (JobStatus.COMPLETED, 2)
    assert len(moments) > 20


def test_whichever_moment_is_restored_the_job_ends_as_it_did(gang: Gang, moments: list[Job]):
    for job in moments:
        last = catch_up(job, gang, 99)[-1]
        assert (last.status, last.attempt, last.launch) == (JobStatus.COMPLETED, 2, 1), job


def test_agents_of_a_later_attempt_are_let_alone_meanwhile(gang: Gang, moments: list[Job]):
    """Both are in attempt 2, and run: no order of a restored record may end that."""
    running = [(each.kind, each.attempt) for each in gang.said[0]].index((Kind.STARTED, 2)) + 1
    for job in moments:
        if any(node.seq > running for node in job.nodes):
            continue
        past = catch_up(job, gang, running)
        assert {order(each, 0, 1, 2)["do"] for each in past} <= {"wait", "go"}
        assert (past[-1].status, past[-1].attempt) == (JobStatus.RUNNING, 2)


def test_who_cancels_meanwhile_is_heard(moments: list[Job]):
    early = next(job for job in moments if job.status is JobStatus.RUNNING)
    job = fold(early, told(early, Kind.CANCEL_ASKED))
    assert is_ahead(job, 2)
    job = fold(job, told(job, Kind.CLOSING, purpose="finish", reason=Reason.CANCELED))
    assert order(job, 0, 1, 2) == {"do": "stop", "why": Reason.CANCELED}
    assert not is_ahead(job, 2), "what they say on their way out is taken in"


def test_nothing_is_taken_in_over_a_gap(gang: Gang):
    job = fold(policy.new(NODES), gang.said[0][0])
    assert accepted(job, 0, 1, gang.said[0][2:4]) == ()
    assert list(accepted(job, 0, 1, gang.said[0][1:4])) == gang.said[0][1:4]
    assert list(accepted(job, 0, 7, gang.said[0][2:4])) == gang.said[0][2:4], (
        "it is to leave anyway"
    )
    assert all(each.kind in FROM_AGENTS for each in gang.said[0])
