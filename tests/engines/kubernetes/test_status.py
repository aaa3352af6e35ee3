"""From Jobs and pods, as a cluster reports them, to the status of a gang."""

from __future__ import annotations

from typing import Any

import pytest

from allranks.engines.base import GangStatus
from allranks.engines.kubernetes.status import CONTAINERS, DISRUPTIONS, ENDS, status
from allranks.engines.kubernetes.views import JobView, PodView, job_view, pod_view
from allranks.statuses import GangState, Reason

JOB = JobView("allranks-fox-1-0a1b2c3d", "fox.1", 3)
UP = {"started": True, "host": "h"}


def pods(*changes: dict[str, Any]) -> list[PodView]:
    """Three pods that run on three nodes, with these changes."""
    given = [*changes, *[{}] * 3][:3]
    return [
        PodView(**{"name": f"p{n}", "gang": JOB.name, "node": n, "phase": "Running", **UP, **each})
        for n, each in enumerate(given)
    ]


def ended(**changes: Any) -> dict[str, Any]:
    return {"phase": "Failed", "started": False, **changes}


def seen(*changes: dict[str, Any], job: JobView | None = JOB, **more: Any) -> GangStatus:
    return status(job, pods(*changes), **more)


def test_it_is_up_when_all_pods_run():
    assert seen() == GangStatus(GangState.UP)


def test_a_pod_that_ended_is_a_lost_node_of_a_gang_that_is_up():
    assert seen({}, ended(reason="Evicted")) == GangStatus(GangState.UP, "", (1,))
    assert seen({"phase": "Succeeded"}).lost == (0,)


def test_a_node_that_does_not_report_is_lost():
    assert seen({}, {}, {"silent": True}) == GangStatus(GangState.UP, "", (2,))


@pytest.mark.parametrize("reason", sorted(DISRUPTIONS))
def test_what_ends_a_pod_from_outside_has_a_reason(reason: str):
    gone = seen(ended(), ended(disruption=reason), ended(), job=JOB._replace(end="x"))
    assert (gone.state, gone.reason) == (GangState.GONE, DISRUPTIONS[reason][0])
    assert "node 1 on h" in gone.why


@pytest.mark.parametrize("reason", sorted(ENDS))
def test_what_fails_a_pod_has_a_reason(reason: str):
    gone = seen(*[ended(reason=reason)] * 3, job=JOB._replace(end="x"))
    assert (gone.state, gone.reason) == (GangState.GONE, ENDS[reason][0])


@pytest.mark.parametrize("reason", [*sorted(CONTAINERS), "Unheard"])
def test_what_ends_a_container_has_a_reason(reason: str):
    message = "line\nlast words\n"
    gone = seen(ended(ended=(reason, message, 137)), ended(), ended(), job=JOB._replace(end="x"))
    assert gone.state is GangState.GONE
    assert gone.reason is CONTAINERS.get(reason, CONTAINERS["Error"])[0]
    assert "exit code 137): last words" in gone.why


@pytest.mark.parametrize(
    ("words", "meaning"),
    [
        ("exec /bin/bash: exec format error", "for another architecture"),
        ("/bin/bash: line 7: exec: python3: not found", "set `python`, or bring one by"),
        ("/bin/bash: line 7: exec: /opt/python3.12: not found", "set `python`, or bring one by"),
    ],
)
def test_last_words_that_few_understand_are_explained(words: str, meaning: str):
    gone = seen(*[ended(ended=("Error", words, 1))] * 3, job=JOB._replace(end="x"))
    assert f"{words} (the image " in gone.why
    assert meaning in gone.why


RUNC = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc "
    "create failed: unable to start container process: "
)
CRIO = 'container create failed: time="2026-04-07T08:00:00Z" level=error msg="runc create failed: '


@pytest.mark.parametrize(
    ("words", "meaning"),
    [
        # containerd with runc, before and after 1.2; with a path.
        (f'{RUNC}exec: "python3": executable file not found in $PATH: unknown', "no such Python"),
        (
            f'{RUNC}error during container init: exec: "/opt/python3.12": stat /opt/python3.12: '
            "no such file or directory: unknown",
            "no such Python",
        ),
        # CRI-O with runc, and with crun; kata.
        (
            rf"{CRIO}unable to start container process: exec: \"python3\": executable file not "
            'found in $PATH"',
            "no such Python",
        ),
        (
            "container create failed: executable file `python3` not found in $PATH: No such file "
            "or directory",
            "no such Python",
        ),
        (
            "failed to create containerd task: failed to create shim task: the file python3 was "
            "not found: unknown",
            "no such Python",
        ),
        (f'{RUNC}exec: "/bin/bash": stat /bin/bash: no such file or directory', "no bash"),
        (f'{RUNC}exec: "train": executable file not found in $PATH: unknown', ""),
    ],
)
def test_a_container_that_cannot_be_started_is_explained(words: str, meaning: str):
    """containerd ends it, CRI-O lets it wait."""
    gone = seen(*[ended(ended=("StartError", words, 128))] * 3, job=JOB._replace(end="x"))
    stuck = {"started": False, "phase": "Pending", "waiting": ("CreateContainerError", words)}
    waiting = seen(*[stuck] * 3)
    assert (gone.reason, waiting.state) == (Reason.SETUP_FAILED, GangState.PROVISIONING)
    for why in (gone.why, waiting.why):
        assert words in why
        assert ("(the image has " in why) is bool(meaning)
        assert f"(the image has {meaning}" in why or not meaning


def test_what_came_from_outside_counts_before_the_exit_codes_that_follow():
    failed = ended(ended=("Error", "", 1))
    preempted = ended(disruption="PreemptionByScheduler", ended=("Error", "", 143))
    gone = seen(failed, failed, preempted, job=JOB._replace(end="FailedIndexes"))
    assert gone.reason is Reason.PREEMPTED


def test_a_pod_that_was_deleted_is_named_with_its_machine():
    """The agent got SIGTERM and ended well, as after a preemption; the pod may be gone by now."""
    (pod, *_) = pods({"phase": "Succeeded", "started": False, "deleted": True})
    said = "Kubernetes: node 0 on h: its pod p0 was deleted, by somebody or by the cluster"
    for end in ("", "Complete", "FailedIndexes"):
        job = JOB._replace(end=end, nodes=1)
        assert status(job, [pod], removed=[pod]) == GangStatus(
            GangState.GONE, said, reason=Reason.PREEMPTED
        )
    job = JOB._replace(end="FailedIndexes", nodes=1)
    assert status(job, [], removed=[pod]).why == said
    # Its agent could not say anything: as before, the node is lost.
    killed = status(job, [], removed=[pod._replace(phase="Running")])
    assert (killed.why, killed.reason) == (said, None)
    evicted = pod._replace(phase="Failed", disruption="EvictionByEvictionAPI")
    assert "it was evicted" in status(job, [], removed=[evicted]).why
    assert status(None, [], known=True, removed=[pod]).reason is Reason.CANCELED


def test_a_deadline_counts_before_how_its_pods_ended():
    gone = seen(*[ended(ended=("Error", "", 143))] * 3, job=JOB._replace(end="DeadlineExceeded"))
    assert gone.reason is Reason.TIME_LIMIT


def test_agents_that_end_with_0_have_no_reason():
    done = {"phase": "Succeeded", "started": False}
    gone = seen(done, done, done, job=JOB._replace(end="Complete"))
    assert (gone.state, gone.reason) == (GangState.GONE, None)


def test_a_failed_job_is_not_gone_while_a_pod_runs():
    assert seen(ended(), job=JOB._replace(end="FailedIndexes")).state is GangState.UP


def test_a_deleted_job_is_up_until_its_last_pod_is_gone():
    deleted = JOB._replace(deleted=True)
    assert seen(job=deleted).state is GangState.UP
    assert seen(job=None, known=True).state is GangState.UP
    gone = status(deleted, [])
    assert (gone.state, gone.reason) == (GangState.GONE, Reason.CANCELED)
    # A pod on a node that is gone stays until somebody removes it by force.
    assert status(deleted, pods(*[{"silent": True}] * 3)).reason is Reason.NODE_LOST


def test_a_job_that_was_never_seen_has_no_reason():
    assert status(None, []) == GangStatus(GangState.GONE, "Kubernetes: it has no such job")


def test_it_waits_in_the_schedulers_words():
    words = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    waits = {"phase": "Pending", "started": False, "host": "", "unscheduled": words}
    assert seen({}, {}, waits) == GangStatus(GangState.QUEUED, f"Kubernetes: {words}")


def test_what_an_autoscaler_says_follows_the_schedulers_words():
    words = "0/3 nodes are available: 3 Insufficient cpu."
    waits = {"phase": "Pending", "started": False, "host": "", "unscheduled": words}
    said = "pod triggered scale-up: [{pool 1->2 (max: 5)}]"
    found = seen({}, {}, waits, event=said)
    assert found.why == f"Kubernetes: {words[:-1]}; the autoscaler: {said}"
    assert seen({}, {}, {**waits, "unscheduled": ""}, event=said).why == f"Kubernetes: {said}"
    assert seen(event=said) == GangStatus(GangState.UP)


def test_it_waits_for_its_image_in_the_kubelets_words():
    waits = {"started": False, "phase": "Pending", "waiting": ("ImagePullBackOff", "not found")}
    assert seen({}, waits) == GangStatus(
        GangState.PROVISIONING, "Kubernetes: ImagePullBackOff: not found (on h)"
    )


def test_pods_that_start_are_counted():
    starts = {"started": False, "phase": "Pending"}
    assert seen({}, starts, starts).why == "Kubernetes: 2 pods starting"


def test_a_suspended_job_waits_for_its_queue():
    queued = status(JOB._replace(suspended=True, queue="team-a"), [])
    assert queued == GangStatus(GangState.QUEUED, "Kubernetes: waits in the queue team-a")


def test_pods_that_are_not_created_are_explained_by_an_event():
    quota = "exceeded quota: team, requested: cpu=1, used: cpu=4, limited: cpu=4"
    assert status(JOB, [], event=quota) == GangStatus(GangState.QUEUED, f"Kubernetes: {quota}")


def test_the_reason_stays_the_same_while_pods_are_refused_again_and_again():
    why = 'violates PodSecurity "restricted:latest": runAsNonRoot != true'
    tries = (
        f'Error creating: pods "j-0-{each}" is forbidden: {why}' for each in ("58txx", "w7r4x")
    )
    assert {status(JOB, [], event=each).why for each in tries} == {
        f"Kubernetes: pods are refused: {why}"
    }


# ------------------------------------------------------------ what is read of an object


def job(conditions: list[dict[str, str]], **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "j", "annotations": {"allranks/key": "fox.1"}},
        "spec": {"completions": 3, **spec},
        "status": {"conditions": conditions},
    }


def test_a_job_is_read():
    failed = {"type": "Failed", "status": "True", "reason": "FailedIndexes", "message": "m"}
    assert job_view(job([failed])) == JobView("j", "fox.1", 3, end="FailedIndexes", message="m")
    assert job_view(job([{**failed, "status": "False"}])) == JobView("j", "fox.1", 3)
    assert job_view(job([{"type": "Complete", "status": "True"}])).end == "Complete"
    assert job_view(job([], suspend=True)).suspended


def pod(state: dict[str, Any], *conditions: tuple[str, str], phase: str = "Running") -> PodView:
    return pod_view(
        {
            "metadata": {
                "name": "p",
                "labels": {"allranks/gang": "j"},
                "annotations": {"batch.kubernetes.io/job-completion-index": "2"},
            },
            "spec": {"nodeName": "h"},
            "status": {
                "phase": phase,
                "conditions": [{"type": kind, "status": value} for kind, value in conditions],
                "containerStatuses": [{"name": "node", "state": state}],
            },
        }
    )


def test_a_pod_is_read():
    healthy = (("Ready", "True"), ("ContainersReady", "True"))
    assert pod({"running": {}}, *healthy) == PodView("p", "j", 2, "Running", "h", started=True)


@pytest.mark.parametrize("index", ["two", "", "9" * 5000, None, 1.5, "²"])
def test_a_pod_with_a_strange_number_is_of_no_node(index: object):
    """Others may write it, and the cluster's other pods are read."""
    annotations = {"batch.kubernetes.io/job-completion-index": index}
    read = pod_view({"metadata": {"name": "p", "annotations": annotations}, "status": {}})
    assert read.node == -1


def test_only_a_lost_nodes_pod_is_not_ready_while_its_containers_are():
    assert pod({"running": {}}, ("Ready", "False"), ("ContainersReady", "True")).silent
    assert not pod({"running": {}}, ("Ready", "False"), ("ContainersReady", "False")).silent
    assert not pod({}, ("Ready", "False"), ("ContainersReady", "True"), phase="Failed").silent


def test_a_container_that_is_being_created_is_not_stuck():
    assert pod({"waiting": {"reason": "ContainerCreating"}}).waiting == ("", "")
    stuck = {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}
    assert pod(stuck).waiting == ("ErrImagePull", "no such image")


def test_an_out_of_memory_kill_is_read():
    killed = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}
    assert pod(killed, phase="Failed").ended == ("OOMKilled", "", 137)
