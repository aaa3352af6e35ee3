"""What a job does next, case by case: read these as the specification of ``decide``."""

from __future__ import annotations

import json

import pytest

from allranks.core.lifecycle import decide as policy
from allranks.core.lifecycle import pending_reason, retry
from allranks.core.lifecycle.decide import (
    Clock,
    Effect,
    Job,
    Step,
    decide,
    failure,
    new,
    outcome,
    ranks_ended,
    unrecorded,
)
from allranks.core.lifecycle.fold import fold
from allranks.core.packing import pack, unpack
from allranks.core.plan import Rules
from allranks.events import Event, Kind
from allranks.statuses import VERDICTS, GangState, JobStatus, NodeState, Reason, RetryOn
from tests.core.model import order

TWICE = Rules(nodes=2, max_attempts=2)
ONCE = Rules(nodes=2)
EARLY = Clock(now=0.0)


class Story:
    """A job of two nodes, told event by event."""

    def __init__(self, rules: Rules = TWICE, nodes: int = 2) -> None:
        self.rules = rules
        self.job = new(nodes)
        self.said = [0] * nodes
        self.now = 0.0

    def server(
        self, kind: Kind, node: int | None = None, *, rank: int | None = None, **data: object
    ) -> Story:
        job = self.job
        said = Event(kind, self.now, job.launch, job.attempt, node, rank, data=data)
        self.job = fold(job, said)
        return self

    def agent(self, node: int, kind: Kind, attempt: int | None = None, **data: object) -> Story:
        self.said[node] += 1
        attempt = attempt or self.job.attempt
        said = Event(kind, self.now, self.job.launch, attempt, node, seq=self.said[node], data=data)
        self.job = fold(self.job, said)
        return self

    def both(self, kind: Kind, **data: object) -> Story:
        for node in range(len(self.job.nodes)):
            self.agent(node, kind, **data)
        return self

    def ready(self) -> Story:
        if self.job.status is JobStatus.NOT_STARTED:
            self.step()
            self.server(Kind.SEEN, state="up", why="")
            self.both(Kind.HELLO)
        return self.both(Kind.READY, address="10.0.0.1", host="a", ports=[7000])

    def running(self) -> Story:
        self.ready().step()
        return self.both(Kind.STARTED)

    def fails(self, node: int, reason: Reason = Reason.RANK_EXITED, **data: object) -> Story:
        return self.agent(node, Kind.ENDED, reason=reason, **data)

    def drained(self) -> Story:
        """Those that still run stop as they are told; all hand in what they have."""
        for node, each in enumerate(self.job.nodes):
            if each.state is NodeState.ABSENT:
                continue
            if each.reason is None and not each.left and each.state is not NodeState.LOST:
                told = order(self.job, node, self.job.launch, self.job.attempt)
                self.fails(node, told["why"])
            self.agent(node, Kind.DRAINED)
        return self

    def step(self, clock: Clock | None = None) -> Step:
        """Take the next step, as the loop does."""
        step = decide(self.job, self.rules, clock or Clock(now=self.now))
        assert step is not None
        data = dict(step.data)
        if step.event is Kind.FINISHED:
            data = {"status": VERDICTS[outcome(self.job).reason].outcome}
        self.server(step.event, step.node, **data)
        return step

    def next(self, **clock: object) -> Step | None:
        return decide(self.job, self.rules, Clock(**{"now": self.now, **clock}))  # type: ignore[arg-type]

    def ended(self) -> Job:
        """Agents that leave when they are told to, an engine that answers: to the end, or to the
        next launch."""
        launch = self.job.launch
        while self.job.launch == launch:
            if self.job.status is JobStatus.FINALIZING:
                self.drained()
                for node in range(len(self.job.nodes)):
                    if self.job.nodes[node].state is NodeState.EXITED:
                        self.agent(node, Kind.BYE)
            if self.next() is None:
                break
            if self.step().effect is Effect.STOP:
                self.server(Kind.SEEN, state="gone", why="")
        return self.job

    def do(self, node: int) -> str:
        return str(order(self.job, node, self.job.launch, self.job.attempt)["do"])


def closing(purpose: str, reason: Reason) -> Step:
    return Step(Kind.CLOSING, data={"purpose": purpose, "reason": reason})


# ---------------------------------------------------------------- the way through


def test_a_new_job_is_submitted():
    assert Story().next() == Step(Kind.SUBMITTED, Effect.SUBMIT)


def test_the_words_of_its_way():
    story, words = Story(), []
    words.append(story.job.status)
    story.step()
    words.append(story.job.status)
    words.append(story.server(Kind.SEEN, state="up", why="").job.status)
    words.append(story.both(Kind.HELLO).job.status)
    story.ready().step()
    words.append(story.job.status)
    story.both(Kind.STARTED).both(Kind.ENDED, reason=Reason.DONE).step()
    words.append(story.job.status)
    words.append(story.both(Kind.DRAINED).both(Kind.BYE).ended().status)
    assert words == [
        "NotStarted",
        "Queued",
        "Provisioning",
        "Preparing",
        "Running",
        "Finalizing",
        "Completed",
    ]


def test_go_waits_for_the_last_node():
    story = Story()
    story.step()
    story.both(Kind.HELLO).agent(0, Kind.READY, address="a", host="a", ports=[1])
    assert story.next() is None
    assert story.do(0) == "wait"
    story.agent(1, Kind.READY, address="b", host="b", ports=[2])
    assert story.next() == Step(Kind.GO)
    story.step()
    assert (story.do(0), story.do(1)) == ("go", "go")


def test_a_hello_before_the_engine_says_up_is_a_hello():
    story = Story()
    story.step()
    assert story.agent(0, Kind.HELLO).job.status is JobStatus.PREPARING


def test_a_gang_that_goes_back_to_the_queue_has_its_whole_time_again():
    story = Story()
    story.step()
    story.server(Kind.SEEN, state="up", why="").server(Kind.SEEN, state="queued", why="")
    story.now = 1000.0
    assert story.job.status is JobStatus.QUEUED
    assert story.next() is None


def test_workers_done_completes_though_parameter_servers_run():
    story = Story().running().both(Kind.WORKED)
    assert story.next() == closing("finish", Reason.DONE)
    story.step()
    assert order(story.job, 0, 1, 1) == {"do": "stop", "why": Reason.DONE}
    assert story.ended().status is JobStatus.COMPLETED


def test_the_engine_that_reports_a_loss_after_all_are_done_is_not_believed():
    story = Story().running().both(Kind.ENDED, reason=Reason.DONE)
    story.server(Kind.SEEN, state="gone", why="node failure").server(Kind.LOST, 0, why="dead")
    assert story.ended().status is JobStatus.COMPLETED


def test_a_node_lost_with_its_parameter_server_is_a_loss_while_others_work():
    story = Story().running().agent(0, Kind.WORKED).server(Kind.LOST, 0, why="silent")
    assert story.next() == closing("relaunch", Reason.NODE_LOST)


# ---------------------------------------------------------------- again, or not


@pytest.mark.parametrize(
    ("reason", "purpose"),
    [
        (Reason.RANK_EXITED, "regroup"),
        (Reason.RANK_KILLED, "regroup"),
        (Reason.SETUP_FAILED, "finish"),
        (Reason.PREEMPTED, "relaunch"),
        (Reason.PLATFORM_ERROR, "finish"),
    ],
)
def test_what_follows_a_failure_with_attempts_left(reason: Reason, purpose: str):
    assert Story().running().fails(1, reason).next() == closing(purpose, reason)


def again(story: Story, reason: Reason, node: int = 0, **data: object) -> float:
    """One more attempt after that failure; how long it had to wait."""
    story.running()
    lost = reason is Reason.NODE_LOST
    story.server(Kind.LOST, node, why="x") if lost else story.fails(node, reason, **data)
    story.step()
    assert story.job.then is not None
    if story.job.then.purpose == "regroup":
        story.drained()
        began = story.now
        while story.next() is None:
            story.now += 0.5
        assert story.step() == Step(Kind.REGROUPED)
        return story.now - began
    assert story.job.then.purpose == "relaunch", story.job.then
    story.ended()
    if story.job.status is JobStatus.FINALIZING:  # what agents take for it is the engine's to say
        story.server(Kind.SEEN, state="gone", why="").ended()
    story.said = [0, 0]
    waited = story.job.not_before - story.now
    story.now = story.job.not_before
    return waited


def budgets(**given: int) -> Rules:
    return Rules(nodes=2, max_attempts=2, budgets=given)


def test_each_cause_has_a_budget_of_its_own():
    rules = budgets(node_lost=1, preempted=2, setup=0)
    story = Story(rules)
    again(story, Reason.PREEMPTED)
    again(story, Reason.NODE_LOST)
    again(story, Reason.RANK_EXITED)
    again(story, Reason.PREEMPTED)
    for reason in (Reason.PREEMPTED, Reason.NODE_LOST, Reason.RANK_EXITED):
        assert retry.left(rules, story.job.spent, VERDICTS[reason].retry) == 0
    assert story.job.attempt == 5
    story.running().fails(0, Reason.PREEMPTED)
    assert story.next() == closing("finish", Reason.PREEMPTED)


def test_what_failed_in_setup_and_may_pass_is_tried_here_once_and_then_elsewhere():
    story = Story()
    launches, waits = [], []
    for _ in range(retry.BUDGETS[RetryOn.SETUP].restarts or 0):
        waits.append(again(story, Reason.SETUP_FAILED, passing=True))
        launches.append(story.job.launch)
    assert launches == [1, 2, 3]
    assert waits == [5.0, 10.0, 20.0]
    assert (story.job.spent.user, story.job.spent.setup) == (0, 3)
    assert story.running().fails(0, Reason.SETUP_FAILED, passing=True).next() == closing(
        "finish", Reason.SETUP_FAILED
    )


def test_a_script_that_fails_at_once_again_and_again_waits_longer_and_longer():
    story = Story(Rules(nodes=2, max_attempts=9))
    assert [again(story, Reason.RANK_EXITED) for _ in range(8)] == [0, 1, 2, 4, 8, 16, 32, 60]
    assert story.job.previous is Reason.RANK_EXITED
    assert story.running().fails(0).next() == closing("finish", Reason.RANK_EXITED)


def test_after_a_long_run_the_wait_begins_anew_but_no_attempt_comes_back():
    story = Story(Rules(nodes=2, max_attempts=5, budgets={"node_lost": 1}))
    again(story, Reason.RANK_EXITED)
    again(story, Reason.NODE_LOST)
    story.running()
    story.now += retry.HEALTHY
    story.server(Kind.LOST, 0, why="x").step()
    assert story.job.then == policy.Then("relaunch", Reason.NODE_LOST)
    story.ended()
    assert story.job.not_before == story.now
    assert (story.job.spent.user, story.job.spent.node_lost, story.job.spent.row) == (1, 1, 1)


def test_a_wait_ends_with_the_time_of_the_job_and_with_a_cancel():
    rules = Rules(nodes=2, max_attempts=9, timeout=5.0)
    story = Story(rules)
    story.job = story.job._replace(spent=retry.Spent(user=4, row=4))
    story.running().fails(0).step()
    story.drained()
    story.now = 4.9
    assert story.next() is None
    assert pending_reason.pending_reason(story.job, 4.9) == "restarts in 4 s after RANK_EXITED"
    story.now = 5.0
    assert story.step() == Step(Kind.REGROUPED)
    assert story.next() == closing("finish", Reason.TIME_LIMIT)
    other = Story(rules)
    other.job = other.job._replace(spent=retry.Spent(user=4, row=4))
    other.running().fails(0).step()
    other.drained().server(Kind.CANCEL_ASKED)
    assert other.next() == closing("finish", Reason.CANCELED)


def test_an_attempt_is_told_why_the_one_before_ended():
    story = Story()
    assert order(story.running().job, 0, 1, 1)["previous"] is None
    again(Story(), Reason.RANK_EXITED)
    story = Story()
    again(story, Reason.PREEMPTED)
    assert order(story.running().job, 0, 2, 2)["previous"] is Reason.PREEMPTED


# ---------------------------------------------------------------- taken away


def test_when_one_node_is_to_go_all_have_their_grace_at_once():
    story = Story().running().agent(0, Kind.TAKEN, reason=Reason.PREEMPTED)
    assert story.step() == closing("relaunch", Reason.PREEMPTED)
    for node in (0, 1):
        told = order(story.job, node, 1, 1)
        assert told == {"do": "stop", "why": Reason.PREEMPTED}


def test_peers_of_a_node_that_goes_fail_for_that():
    story = Story().running().agent(0, Kind.TAKEN, reason=Reason.PREEMPTED, failed_at=3.0)
    story.fails(1, failed_at=4.0).fails(0, Reason.PREEMPTED, failed_at=9.0)
    assert story.step() == closing("relaunch", Reason.PREEMPTED)
    story.drained().server(Kind.SEEN, state="gone", why="").ended()
    assert (story.job.spent.preempted, story.job.spent.user) == (1, 0)


def test_the_end_of_the_time_that_a_cluster_gives_is_told_at_once_too():
    story = Story(ONCE).running().agent(0, Kind.TAKEN, reason=Reason.TIME_LIMIT, message="over")
    assert story.step() == closing("finish", Reason.TIME_LIMIT)
    assert outcome(story.job).message == "over"


@pytest.mark.parametrize("node", [None, 1])
def test_a_preemption_that_is_asked_for_is_one(node: int | None):
    story = Story().running().server(Kind.PREEMPT_ASKED, node, message="by root")
    assert story.step() == closing("relaunch", Reason.PREEMPTED)
    assert story.do(0) == story.do(1) == "stop"
    found = failure(story.job)
    assert found is not None
    assert (found.node, found.message) == (node or 0, "by root")
    story.drained()
    story.server(Kind.SEEN, state="gone", why="").ended()
    assert (story.job.attempt, story.job.launch, story.job.spent.user) == (2, 2, 0)
    once = Story(ONCE).running().server(Kind.PREEMPT_ASKED, node)
    assert once.next() == closing("finish", Reason.PREEMPTED)


def test_a_rank_that_is_to_be_killed_is_in_the_orders_of_its_attempt():
    story = Story().running().server(Kind.KILL_ASKED, 1, rank=1)

    def told(node: int) -> object:
        return order(story.job, node, 1, story.job.attempt).get("kill")

    assert (told(0), told(1)) == (1, 1)
    story.fails(1, Reason.RANK_KILLED)
    assert story.step() == closing("regroup", Reason.RANK_KILLED)
    assert told(0) is None
    story.drained().step()
    story.ready().step()
    assert (story.job.attempt, story.job.status, told(1)) == (2, JobStatus.RUNNING, None)
    assert unpack(Job, json.loads(json.dumps(pack(story.job)))) == story.job


def test_a_kill_that_is_asked_of_a_job_that_does_not_run_says_nothing():
    story = Story()
    assert story.server(Kind.KILL_ASKED, 0, rank=0).job == new(2)


def test_a_preemption_that_is_asked_of_a_job_that_does_not_run_says_nothing():
    story = Story()
    assert story.server(Kind.PREEMPT_ASKED).job == new(2)
    done = Story().running().both(Kind.ENDED, reason=Reason.DONE).server(Kind.PREEMPT_ASKED)
    assert done.next() == closing("finish", Reason.DONE)


@pytest.mark.parametrize("reason", [Reason.RANK_EXITED, Reason.PREEMPTED, Reason.SETUP_FAILED])
def test_one_attempt_is_no_restart_at_all(reason: Reason):
    assert Story(ONCE).running().fails(1, reason, passing=True).next() == closing("finish", reason)


def test_one_attempt_is_no_restart_after_a_loss_either():
    story = Story(ONCE).running().server(Kind.LOST, 0, why="silent")
    assert story.next() == closing("finish", Reason.NODE_LOST)
    assert story.ended().status is JobStatus.FAILED


def test_a_cause_that_is_not_named_in_retry_ends_the_job():
    rules = Rules(nodes=2, max_attempts=3, on=("user",))
    assert Story(rules).running().fails(0, Reason.PREEMPTED).next() == closing(
        "finish", Reason.PREEMPTED
    )


def test_a_user_failure_regroups_in_the_same_launch():
    story = Story().running().fails(0)
    story.step()
    assert story.do(1) == "stop"
    assert story.next() is None
    story.drained()
    assert story.do(0) == "wait"
    assert story.step() == Step(Kind.REGROUPED)
    assert (story.job.launch, story.job.attempt, story.job.spent.user) == (1, 2, 1)
    assert order(story.job, 0, 1, 1) == {"do": "prepare", "attempt": 2}


def test_after_the_last_attempt_it_fails():
    story = Story().running().fails(0)
    story.step()
    story.drained().step()
    story.running().fails(1)
    assert story.next() == closing("finish", Reason.RANK_EXITED)
    story.step()
    assert story.ended().status is JobStatus.FAILED


def test_losses_do_not_eat_the_users_attempts():
    story = Story()
    for launch in range(1, 4):
        story.now = 1000.0 * launch
        story.said = [0, 0]
        story.running().server(Kind.LOST, 0, why="silent").ended()
        assert (story.job.spent.node_lost, story.job.spent.user) == (launch, 0)
    assert story.job.launch == 4


def test_a_port_that_was_taken_is_tried_again_whatever_the_user_asked_for():
    story = Story(ONCE)
    for race in range(retry.BUDGETS[RetryOn.PORT].restarts or 0):
        story.running().fails(0, Reason.PORT_TAKEN)
        assert story.step() == closing("regroup", Reason.PORT_TAKEN)
        assert story.drained().step() == Step(Kind.REGROUPED)
        assert (story.job.launch, story.job.attempt) == (1, race + 2)
        assert story.job.spent == retry.Spent(port=race + 1)
    assert story.running().fails(0, Reason.PORT_TAKEN).next() == closing(
        "finish", Reason.PORT_TAKEN
    )


def test_of_two_jobs_that_met_the_one_that_came_ends_and_the_other_starts_again():
    came, was_there = Story(), Story(ONCE)
    assert came.running().fails(0, Reason.PORT_CONFLICT).next() == closing(
        "finish", Reason.PORT_CONFLICT
    )
    was_there.running().fails(0, Reason.PORT_CONFLICT, passing=True)
    assert was_there.step() == closing("regroup", Reason.PORT_CONFLICT)
    assert was_there.drained().step() == Step(Kind.REGROUPED)
    assert was_there.job.spent == retry.Spent(port=1), "no attempt of the user's"


@pytest.mark.parametrize(("away", "unseen"), [(0.0, 0.0), (5.0, 0.0), (3600.0, 3600.0)])
def test_an_end_that_a_server_learns_later(away: float, unseen: float):
    story = Story(ONCE).running()
    story.now = 100.0
    story.fails(0, Reason.DONE).fails(1, Reason.DONE)
    story.now += away
    assert story.step() == closing("finish", Reason.DONE)
    assert unrecorded(story.job) == unseen


@pytest.mark.parametrize("kind", [Kind.HELD, Kind.ENDED])
def test_a_failure_that_lasts_until_it_is_closed(kind: Kind):
    story = Story(ONCE).running()
    story.agent(0, kind, reason=Reason.RANK_EXITED, until=5000.0)
    story.fails(1)
    story.now = 5001.0
    story.step()
    assert unrecorded(story.job) == 0.0


def test_the_ranks_of_a_launch_have_ended_once_no_attempt_on_its_nodes_follows():
    story = Story().running()
    assert not ranks_ended(story.job)
    story.fails(0)
    story.step()
    assert not ranks_ended(story.drained().job), "it restarts on the same nodes"
    last = Story(ONCE).running().fails(0)
    last.step()
    assert not ranks_ended(last.job), "the other node's ranks still run"
    assert ranks_ended(last.drained().job)


def test_a_rank_that_is_done_while_others_still_run_is_told_of():
    story = Story().running()
    story.now = 100.0
    story.agent(0, Kind.RANK_ENDED)
    assert (
        pending_reason.pending_reason(story.job, 1000.0) == ""
    )  # one that failed is told of by its end
    job = fold(story.job, Event(Kind.RANK_ENDED, 100.0, 1, 1, 0, 3, seq=99, data={"code": 0}))
    assert pending_reason.pending_reason(job, 100.0 + pending_reason.LEFT_BEHIND) == ""
    said = pending_reason.pending_reason(job, 101.0 + pending_reason.LEFT_BEHIND)
    assert said.startswith("rank 3 exited with code 0 more than 30 s ago while others still run")
    assert pending_reason.pending_reason(job, 1000.0, together=False) == ""
    assert pending_reason.left_early(job, 100.0) == ""
    assert pending_reason.left_early(job, 101.0) == (
        "rank 3 had already exited with code 0; if others waited for it, make sure that every rank "
        "takes the same number of steps"
    )
    assert unpack(Job, json.loads(json.dumps(pack(job)))) == job


def test_a_job_whose_files_wait_for_space_is_finalizing_for_people():
    story = Story().running()
    story.agent(0, Kind.NOTE, doing="waits for space to save the state folder: full")
    assert pending_reason.shown_status(story.job) is JobStatus.RUNNING  # ranks of node 1 run
    story.agent(1, Kind.ENDED, reason=Reason.DONE)
    assert pending_reason.shown_status(story.job) is JobStatus.FINALIZING
    said = pending_reason.pending_reason(story.job, story.now)
    assert said == "node 0 waits for space to save the state folder: full"
    story.agent(0, Kind.NOTE, doing="")
    assert pending_reason.shown_status(story.job) is JobStatus.RUNNING


def test_a_job_that_is_done_but_could_not_be_saved_has_failed():
    story = Story().running()
    story.agent(0, Kind.ENDED, reason=Reason.DONE).agent(1, Kind.WORKED).step()
    assert story.job.status is JobStatus.FINALIZING
    story.agent(1, Kind.ENDED, reason=Reason.OUTPUTS_LOST, message="not all is saved")
    assert outcome(story.job).message == "not all is saved"


def test_what_takes_nodes_long_before_they_are_ready_is_told():
    story = Story(nodes=3)
    story.step()
    story.server(Kind.SEEN, state="up", why="").both(Kind.HELLO)
    assert pending_reason.pending_reason(story.job, 1.0) == story.job.why
    story.agent(1, Kind.NOTE, doing="pulls the image x")
    assert pending_reason.pending_reason(story.job, 1.0) == "node 1 pulls the image x"
    story.agent(0, Kind.NOTE, doing="pulls the image x")
    assert (
        pending_reason.pending_reason(story.job, 1.0)
        == "node 0 pulls the image x (and 1 more node)"
    )
    story.agent(2, Kind.NOTE, doing="pulls the image x")
    assert (
        pending_reason.pending_reason(story.job, 1.0)
        == "node 0 pulls the image x (and 2 more nodes)"
    )
    story.both(Kind.READY, address="127.0.0.2", host="h", ports=[])
    assert pending_reason.pending_reason(story.job, 1.0) == ""
    assert unpack(Job, json.loads(json.dumps(pack(story.job)))) == story.job


def test_losses_end_somewhere():
    story = Story()
    for launch in range((retry.BUDGETS[RetryOn.NODE_LOST].restarts or 0) + 1):
        story.now = 1000.0 * launch
        story.said = [0, 0]
        story.running().server(Kind.LOST, 0, why="silent").ended()
    assert story.job.status is JobStatus.FAILED


def test_the_first_relaunch_is_at_once_and_later_ones_wait_longer():
    waits = []
    story = Story()
    for launch in range(5):
        story.now = 1000.0 * launch
        story.said = [0, 0]
        story.running().server(Kind.LOST, 0, why="silent").ended()
        waits.append(story.job.not_before - story.now)
    assert waits == [0.0, 1.0, 2.0, 4.0, 8.0]


def test_a_relaunch_is_not_submitted_before_its_time():
    job = new(2)._replace(not_before=10.0)
    assert decide(job, TWICE, Clock(now=9.9)) is None
    assert decide(job, TWICE, Clock(now=10.0)) == Step(Kind.SUBMITTED, Effect.SUBMIT)


def test_a_preempted_gang_is_launched_anew_once_it_is_gone():
    story = Story().running().fails(0, Reason.PREEMPTED)
    story.step()
    assert story.next() is None  # node 1 is left to stop its ranks
    story.drained().agent(0, Kind.BYE)
    assert story.do(1) == "leave"
    assert story.next() is None
    story.now = 30.0
    assert story.step() == Step(Kind.STOPPING, Effect.STOP)
    assert story.next() is None
    story.server(Kind.SEEN, state="gone", why="")
    assert story.step() == Step(Kind.RELAUNCHED)
    assert (story.job.launch, story.job.attempt, story.job.status) == (2, 2, "NotStarted")


def left(reason: str | None, why: str = "Slurm: …", rules: Rules = TWICE) -> Story:
    """Both nodes were told to go by their engine and have left; then it says why."""
    story = Story(rules).running().fails(0, Reason.PREEMPTED)
    story.step()
    story.drained().both(Kind.BYE)
    assert story.next() is None  # only the engine knows why
    return story.server(Kind.SEEN, state="gone", why=why, reason=reason)


def test_what_agents_took_for_a_preemption_was_a_cancel():
    story = left("CANCELED", "by root")
    story.ended()
    assert (story.job.status, story.job.launch) == (JobStatus.CANCELED, 1)
    assert outcome(story.job)[:5] == (Reason.CANCELED, None, None, None, "by root")


def test_after_an_engines_time_limit_it_starts_again_as_after_a_preemption():
    story = left("TIME_LIMIT")
    story.step()
    story.step()
    assert (story.job.launch, story.job.spent.user, story.job.spent.preempted) == (2, 0, 1)
    once = left("TIME_LIMIT", "time is over", ONCE)
    once.ended()
    assert outcome(once.job).message == "time is over"
    assert once.job.status is JobStatus.FAILED


def test_an_agent_that_was_told_of_the_time_limit_counts_the_same():
    story = Story().running().fails(0, Reason.TIME_LIMIT, message="over")
    story.ended()
    assert story.job.launch == 2


def test_a_users_own_time_limit_ends_it():
    story = Story(TWICE._replace(timeout=5.0)).running()
    story.now = 5.0
    story.ended()
    assert (story.job.status, outcome(story.job).reason) == (JobStatus.FAILED, Reason.TIME_LIMIT)


def test_a_preemption_that_was_a_lost_node_names_the_one_that_said_nothing():
    story = Story(ONCE).running().fails(0, Reason.PREEMPTED)
    story.step()
    story.server(Kind.SEEN, state="gone", why="a node failed", reason="NODE_LOST")
    assert failure(story.job).reason is Reason.NODE_LOST
    assert failure(story.job).node == 1


def test_what_the_engine_says_after_our_own_stop_is_no_reason():
    story = Story(ONCE).running().server(Kind.LOST, 0, why="silent").server(Kind.LOST, 1, why="x")
    story.step()
    assert story.step() == Step(Kind.STOPPING, Effect.STOP)
    story.server(Kind.SEEN, state="gone", why="canceled", reason="CANCELED")
    story.ended()
    assert outcome(story.job).reason is Reason.NODE_LOST


def test_an_engine_that_never_says_why_is_waited_for_no_longer_than_agents_are():
    story = Story(ONCE).running().fails(0, Reason.PREEMPTED)
    story.step()
    story.drained().both(Kind.BYE)
    assert story.next() is None
    assert story.next(now=1000.0) == Step(Kind.FINISHED)


def test_no_regroup_with_a_lost_node():
    story = Story().running().fails(0)
    story.step()
    story.server(Kind.LOST, 1, why="silent")
    assert story.next() == closing("relaunch", Reason.RANK_EXITED)


def test_no_regroup_with_a_node_that_left():
    story = Story().running().fails(0)
    story.step()
    story.drained().agent(1, Kind.BYE)
    assert story.next() == closing("relaunch", Reason.RANK_EXITED)


def test_a_regroup_nobody_came_to_is_a_relaunch():
    story = Story().running().fails(0)
    story.step()
    assert story.next(now=29.9) is None
    assert story.next(now=30.0) == closing("relaunch", Reason.RANK_EXITED)


def test_a_node_that_hands_in_its_output_is_waited_for():
    story = Story().running().fails(0)
    story.step()
    story.agent(1, Kind.ENDED, reason=Reason.PEER_FAILED)
    assert story.next(now=1000.0) is None
    story.both(Kind.DRAINED)
    assert story.next(now=1000.0) == Step(Kind.REGROUPED)


def test_a_server_that_was_away_blames_nobody_for_it():
    story = Story().running().fails(0)
    story.step()
    assert story.next(now=1000.0, since=999.0) is None
    waiting = Story()
    waiting.step()
    waiting.server(Kind.SEEN, state="up", why="")
    assert waiting.next(now=1000.0, since=999.0) is None
    lost = waiting.next(now=1200.0, since=999.0)
    assert lost is not None
    assert lost.event is Kind.LOST


def asleep(rules: Rules = ONCE, reason: Reason | None = Reason.SETUP_FAILED) -> Story:
    """The server was away. Meanwhile the gang got its nodes, and has ended."""
    story = Story(rules)
    story.step()
    story.server(Kind.SEEN, state="queued", why="busy")
    story.now = 100.0
    return story.server(Kind.SEEN, state="gone", why="no server answers", reason=reason)


@pytest.mark.parametrize("rules", [ONCE, TWICE])
def test_a_gang_that_found_no_server_is_submitted_again_and_uses_no_attempt(rules: Rules):
    story = asleep(rules)
    assert story.step(Clock(now=100.0, missed=True)) == closing("resubmit", Reason.SETUP_FAILED)
    assert story.step().effect is Effect.STOP
    assert story.step() == Step(Kind.RELAUNCHED)
    job = story.job
    assert (job.launch, job.attempt, job.spent) == (2, 1, retry.Spent())
    assert job.status is JobStatus.NOT_STARTED
    assert story.step().effect is Effect.SUBMIT
    # It fails again while the server is there.
    story.server(Kind.SEEN, state="gone", why="no python", reason=Reason.SETUP_FAILED)
    assert story.step() == closing("finish", Reason.SETUP_FAILED)


def test_a_gang_that_failed_while_the_server_was_there_is_not_submitted_again():
    assert asleep().next() == closing("finish", Reason.SETUP_FAILED)
    assert asleep(reason=None).next(missed=True) == closing("finish", Reason.NODE_LOST)
    came = asleep()
    came.agent(0, Kind.HELLO)
    assert came.next(missed=True) == closing("finish", Reason.NODE_LOST)


def test_a_job_that_is_canceled_is_not_submitted_again():
    story = asleep()
    story.step(Clock(now=100.0, missed=True))
    story.server(Kind.CANCEL_ASKED)
    assert story.step() == closing("finish", Reason.CANCELED)
    assert story.ended().status is JobStatus.CANCELED


# ---------------------------------------------------------------- refused, late, silent


def test_a_refused_job_fails_with_the_engines_words():
    story = Story()
    story.server(Kind.REFUSED, message="it needs 99 nodes")
    assert story.step() == closing("finish", Reason.GANG_REFUSED)
    assert outcome(story.job).message == "it needs 99 nodes"
    assert story.ended().status is JobStatus.FAILED


def test_the_time_limit():
    story = Story(Rules(nodes=2, max_attempts=2, timeout=60.0)).running()
    assert story.next(now=59.9) is None
    story.now = 60.0
    assert story.next() == closing("finish", Reason.TIME_LIMIT)
    story.step()
    assert order(story.job, 0, 1, 1) == {"do": "stop", "why": Reason.TIME_LIMIT}
    assert story.ended().status is JobStatus.FAILED
    assert outcome(story.job).reason is Reason.TIME_LIMIT


def test_a_queue_has_no_time_limit():
    story = Story(Rules(nodes=2, timeout=60.0))
    story.step()
    assert story.next(now=1e9) is None


def test_who_never_says_hello_is_lost():
    story = Story()
    story.step()
    story.agent(0, Kind.HELLO)
    assert story.next(now=119.9) is None
    step = story.next(now=120.0)
    assert step is not None
    assert (step.event, step.node) == (Kind.LOST, 1)


def test_who_is_silent_is_lost_and_is_told_to_leave():
    story = Story().running()
    step = story.step(Clock(now=0.0, silent=frozenset({1})))
    assert (step.event, step.node) == (Kind.LOST, 1)
    assert story.do(1) == "leave"
    assert story.agent(1, Kind.ENDED, reason=Reason.DONE).job.nodes[1].state is NodeState.LOST


@pytest.mark.parametrize("running", [True, False])
def test_who_left_without_a_word_is_lost(running: bool):
    """An agent whose patience ran out while the server was away leaves its BYE on the disk."""
    story = Story().running() if running else Story().ready()
    story.agent(1, Kind.BYE)
    assert story.next() == closing("relaunch", Reason.NODE_LOST)


def test_who_left_without_having_prepared_the_next_attempt_is_lost():
    story = Story().running().fails(0)
    story.step()
    story.drained().step()
    story.agent(1, Kind.BYE, attempt=1)
    assert story.next() == closing("relaunch", Reason.NODE_LOST)


def test_nobody_goes_with_a_node_that_left():
    story = Story().ready().agent(1, Kind.BYE).agent(1, Kind.READY, address="a", host="a", ports=[])
    assert story.next() != Step(Kind.GO)
    assert story.do(1) == "leave"


def test_the_engine_is_asked_to_stop_again_if_it_does_not():
    story = Story().running().server(Kind.LOST, 0, why="silent").server(Kind.LOST, 1, why="silent")
    story.step()
    assert story.step() == Step(Kind.STOPPING, Effect.STOP)
    assert story.next(now=4.9) is None
    assert story.next(now=5.0) == Step(Kind.STOPPING, Effect.STOP)


def test_an_engine_that_does_not_answer_says_nothing():
    job = Story().running().job
    after = fold(job, Event(Kind.SEEN, 0.0, data={"state": "unknown", "why": "?"}))
    assert after == job._replace(why="?")


def test_gone_is_never_taken_back():
    story = Story().running().server(Kind.SEEN, state="gone", why="")
    assert story.server(Kind.SEEN, state="up", why="").job.gang is GangState.GONE


# ---------------------------------------------------------------- cancel


def canceled(story: Story) -> Story:
    return story.server(Kind.CANCEL_ASKED)


def test_cancel_before_anything():
    assert canceled(Story()).ended().status is JobStatus.CANCELED


def test_cancel_while_queued():
    story = Story()
    story.step()
    canceled(story.server(Kind.SEEN, state="queued", why="Resources"))
    assert story.next() == closing("finish", Reason.CANCELED)
    assert story.ended().status is JobStatus.CANCELED


def test_cancel_while_preparing():
    story = canceled(Story().ready())
    story.step()
    assert story.do(0) == "stop"
    assert story.ended().status is JobStatus.CANCELED


def test_cancel_while_running_gives_ranks_their_grace():
    story = canceled(Story().running())
    story.step()
    assert order(story.job, 0, 1, 1) == {"do": "stop", "why": Reason.CANCELED}
    assert story.next(now=29.9) is None
    assert story.ended().status is JobStatus.CANCELED


@pytest.mark.parametrize("reason", [Reason.RANK_EXITED, Reason.PREEMPTED])
def test_cancel_while_it_is_to_start_again(reason: Reason):
    story = Story().running().fails(0, reason)
    story.step()
    assert canceled(story).next() == closing("finish", Reason.CANCELED)
    assert story.ended().status is JobStatus.CANCELED
    assert story.job.attempt == 1


def test_cancel_during_back_off():
    story = Story().running().server(Kind.LOST, 0, why="silent")
    story.ended()
    assert canceled(story).ended().status is JobStatus.CANCELED


def test_a_cancel_that_crosses_a_relaunch_is_still_a_cancel():
    story = Story().running().server(Kind.LOST, 0, why="silent")
    story.ended()
    assert story.job.launch == 2
    story.job = fold(story.job, Event(Kind.CANCEL_ASKED, 0.0, launch=1, attempt=1))
    assert story.job.canceled


def test_done_before_the_cancel_was_acted_on_is_done():
    story = canceled(Story().running().both(Kind.ENDED, reason=Reason.DONE))
    assert story.ended().status is JobStatus.COMPLETED


def test_a_cancel_after_the_end_changes_nothing():
    job = new(1)._replace(status=JobStatus.FAILED)
    assert fold(job, Event(Kind.CANCEL_ASKED, 0.0)) is job


# ---------------------------------------------------------------- the cause


def test_the_earliest_failure_is_the_cause_whichever_is_heard_first():
    story = Story().running()
    story.fails(0, failed_at=5.0, code=1, message="broken pipe")
    story.fails(1, Reason.RANK_KILLED, failed_at=4.0, code=137, message="killed")
    found = failure(story.job)
    assert found is not None
    assert (found.reason, found.node, found.code) == (Reason.RANK_KILLED, 1, 137)


def test_who_was_stopped_for_a_peer_is_not_the_cause():
    story = Story(ONCE).running().fails(1, failed_at=4.0)
    story.step()
    assert story.drained().job.nodes[0].reason is Reason.PEER_FAILED
    assert outcome(story.job).node == 1


def test_peer_failed_is_the_cause_only_when_nothing_else_is_known():
    story = Story(ONCE).running().fails(1, Reason.PEER_FAILED)
    assert story.next() == closing("finish", Reason.PEER_FAILED)


def test_a_node_keeps_its_first_failure():
    story = Story().running().fails(0, code=3).fails(0, Reason.PLATFORM_ERROR)
    found = failure(story.job)
    assert found is not None
    assert (found.reason, found.code) == (Reason.RANK_EXITED, 3)


def test_a_host_that_died_is_the_cause_of_what_its_peers_died_of():
    """Peers of a dead host fail by themselves long before its lease runs out."""
    story = Story().running()
    story.now = 4.0
    story.fails(1, failed_at=4.0)
    assert story.step() == closing("regroup", Reason.RANK_EXITED)
    story.now = 13.0
    story.server(Kind.LOST, 0, why="silent", heard=3.0)
    assert story.next() == closing("relaunch", Reason.NODE_LOST)
    story.ended()
    assert (story.job.spent.user, story.job.spent.node_lost) == (0, 1)


def test_a_loss_after_the_failure_is_not_the_cause():
    story = Story(ONCE).running().fails(1, failed_at=4.0)
    story.server(Kind.LOST, 0, why="silent", heard=5.0)
    assert outcome(_finishing(story)).reason is Reason.RANK_EXITED


def test_what_a_lost_node_had_said_stays():
    story = Story(ONCE).running().fails(1, message="rank 1 exited with code 3")
    story.server(Kind.LOST, 1, why="dead")
    assert outcome(_finishing(story)).message == "rank 1 exited with code 3"


def _finishing(story: Story) -> Job:
    story.step()
    return story.job


def test_every_reason_has_a_verdict_with_its_words():
    assert set(VERDICTS) == set(Reason)
    for reason, verdict in VERDICTS.items():
        assert verdict.sentence
        assert verdict.hint or verdict.outcome is not JobStatus.FAILED, reason
        assert verdict.retry in (None, RetryOn.PORT, *Rules().on)
    assert set(retry.BUDGETS) == set(RetryOn) == {RetryOn.PORT, *Rules().on}


# ---------------------------------------------------------------- the record


def test_a_job_that_is_packed_and_loaded_is_the_same_job():
    for story in (Story(), Story().ready(), Story().running().fails(0, code=1, message="x")):
        assert unpack(Job, json.loads(json.dumps(pack(story.job)))) == story.job
    story.step()
    assert unpack(Job, json.loads(json.dumps(pack(story.job)))) == story.job


def test_events_of_a_node_that_does_not_exist_say_nothing():
    job = Story().running().job
    for node in (None, -1, 2):
        assert fold(job, Event(Kind.BYE, 0.0, node=node, seq=9)) is job


# ---------------------------------------------------------------- held failures

FAILED = {"reason": "RANK_EXITED", "message": "rank 1 failed", "code": 1}


def held(rules: Rules = ONCE, until: float = 1000.0) -> Story:
    story = Story(rules).running()
    story.now = 10.0
    return story.agent(1, Kind.HELD, until=until, failed_at=9.0, **FAILED)


def test_a_held_failure_stays_and_stops_the_other_nodes():
    story = held()
    assert story.next() is None
    assert order(story.job, 0, 1, 1)["hold"] is True
    reason = pending_reason.pending_reason(story.job, 10.0)
    assert reason == "held until 00:16:40 UTC: rank 1 failed"
    assert unpack(Job, pack(story.job)) == story.job


def test_a_released_job_ends_or_starts_again_whatever_it_may():
    failed = held().server(Kind.RELEASED, retry=False)
    assert failed.step().data == {"purpose": "finish", "reason": Reason.RANK_EXITED}
    assert failed.ended().status is JobStatus.FAILED
    assert outcome(failed.job).message == "rank 1 failed"
    again = held().server(Kind.RELEASED, retry=True)
    assert again.step().data["purpose"] == "regroup"
    again.drained()
    again.now = 100.0
    assert again.step().event is Kind.REGROUPED
    assert (again.job.attempt, again.job.released, again.job.nodes[1].held) == (2, "", 0.0)


@pytest.mark.parametrize(
    ("rules", "now"),
    [(ONCE, 1000.0 + policy.SLACK), (ONCE._replace(timeout=500.0), 500.0 + policy.SLACK)],
    ids=["its time", "the job's limit"],
)
def test_the_server_ends_a_hold_that_its_agent_does_not(rules: Rules, now: float):
    story = held(rules)
    assert story.next(now=now - 1) is None
    step = story.next(now=now)
    assert step is not None
    assert step.data == {"purpose": "finish", "reason": Reason.RANK_EXITED}


def test_after_its_time_a_held_job_starts_again_if_it_may():
    story = held(TWICE).fails(1, **{**FAILED, "reason": Reason.RANK_EXITED})
    assert story.step().data["purpose"] == "regroup"


@pytest.mark.parametrize("what", ["lost", "gone", "taken", "preempted", "canceled"])
def test_what_ends_a_job_ends_its_hold_and_the_failure_stays_the_cause(what: str):
    story = held()
    if what == "lost":
        story.server(Kind.LOST, 0, why="")
    elif what == "gone":
        story.server(Kind.SEEN, state="gone", why="")
    elif what == "taken":
        story.agent(0, Kind.TAKEN, reason="PREEMPTED")
    elif what == "preempted":  # the node that holds it
        story.server(Kind.PREEMPT_ASKED, 1)
    else:
        story.server(Kind.CANCEL_ASKED)
    assert story.step().data["purpose"] == "finish"
    canceled = Reason.CANCELED if what == "canceled" else Reason.RANK_EXITED
    assert outcome(story.ended() and story.job).reason is canceled
