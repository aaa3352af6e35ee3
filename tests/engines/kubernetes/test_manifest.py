"""What the cluster is sent, to the letter, and whether its own schemas accept it.

`UPDATE_GOLDEN=1 pytest tests/engines/kubernetes` writes the manifests anew.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from allranks.core.plan import Gang
from allranks.engines import agent_bundle
from allranks.engines.kubernetes.cluster import OPTIONAL
from allranks.engines.kubernetes.engine import KubernetesEngine
from allranks.engines.kubernetes.manifest import Names, job
from allranks.engines.kubernetes.server_manifest import ServerOptions, server
from allranks.engines.kubernetes.setup import rights
from allranks.engines.kubernetes.start import Fetched, Shared
from allranks.engines.kubernetes.strategic_merge import merged
from allranks.engines.kubernetes.yaml_text import documents
from allranks.errors import Refused

MANIFESTS = Path(__file__).parent / "manifests"
DISK = Shared("/home/ann/.allranks", "/home/ann/.allranks/nodes/fox.1", "/home/ann/code")
HOSTILE = Shared("/home/$(HOSTNAME)", "/home/$(HOSTNAME)/nodes/fox.1", "/home/$(HOSTNAME)/$$")
NAMES = Names("fox.1", "0123456789ab")
AGENT = ("python", "-P", "-m", "allranks.agent")
ENV = {"ALLRANKS_AGENT_TOKEN": "s3cret", "ALLRANKS_AGENT_URL": "https://10.0.0.5:40000"}
LEAST = {"image": "pytorch/pytorch:2.13", "home_volume": "pvc:allranks"}
GANGS = {
    "least": Gang("fox.1", 3, AGENT, ENV, options=LEAST),
    "gpus": Gang(
        "fox.1",
        2,
        AGENT,
        ENV,
        gpus=8,
        cpus=32,
        memory=256 << 30,
        grace=120,
        spot=True,
        options={
            **LEAST,
            "agent_image": "registry.example.com/python:3.12",
            "service_account": "trainer",
            "node_selector": ["gpu=h100"],
            "spot_node_selector": ["capacity=spot"],
            "tolerations": ["nvidia.com/gpu:NoSchedule"],
            "spot_tolerations": ["spot=true:NoSchedule"],
            "affinity": {
                "podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "topologyKey": "kubernetes.io/hostname",
                            "labelSelector": {"matchLabels": {"app": "trainer"}},
                        }
                    ]
                }
            },
            "priority_class": "high",
            "labels": ["app=trainer"],
            "annotations": ["team=ml"],
            "image_pull_secrets": ["registry"],
            "volumes": [
                "pvc:datasets=/data:ro",
                "nfs:10.0.0.9:/export=/nfs",
                "host:/mnt/nvme=/scratch",
                "empty=/tmp/work",
            ],
            "shm_size": "64g",
            "resources": ["rdma/hca=1"],
            "host_network": True,
            "topology_spread": ["kubernetes.io/hostname"],
        },
    ),
    "own disks": Gang(
        "fox.1", 2, AGENT, ENV, options={"image": "x:1", "cache_volume": "host:/var/cache/allranks"}
    ),
    "hostile home": Gang(
        "fox.1",
        2,
        AGENT,
        ENV,
        options={**LEAST, "home_volume": "host", "python": "/$(X)/$$/python"},
    ),
    "queue": Gang("fox.1", 3, AGENT, ENV, options={**LEAST, "queue": "team-a"}),
}


def rendered(name: str, tmp_path: Path) -> str:
    if name == "hostile home":
        return documents([job(GANGS[name], NAMES, HOSTILE)])
    engine = KubernetesEngine(
        Path("/home/ann/.allranks"), tmp_path, Path("/home/ann/.allranks/nodes"), {}
    )
    text = engine.render(GANGS[name])
    # The code is named by its content.
    if name == "own disks":
        return text.replace(agent_bundle.digest(), "BUNDLE")
    code = next(line for line in text.splitlines() if "/pinned/" in line).split()[-1]
    return text.replace(code, "/CODE")


@pytest.mark.parametrize("name", GANGS)
def test_the_manifest_is_the_golden_one(name: str, tmp_path: Path):
    golden, text = MANIFESTS / f"{name}.yaml", rendered(name, tmp_path)
    if os.environ.get("UPDATE_GOLDEN"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text)
    assert text == golden.read_text()
    assert "s3cret" not in text


@pytest.mark.medium
@pytest.mark.parametrize("version", ["1.29", "1.33", "1.37"])
@pytest.mark.parametrize("name", GANGS)
def test_three_versions_of_kubernetes_accept_it(name: str, version: str, tmp_path: Path):
    for each in yaml.safe_load_all(rendered(name, tmp_path)):
        kubernetes_validate.validate(each, version, strict=True)


SERVERS = {
    "server": ServerOptions("registry.example.com/allranks:1"),
    "server-postgresql": ServerOptions(
        "registry.example.com/allranks:1",
        "1Ti",
        "nfs",
        "ReadWriteMany",
        "database",
        "allranks.example.com",
    ),
}


@pytest.mark.parametrize("name", SERVERS)
def test_the_servers_manifest_is_the_golden_one(name: str):
    golden, text = MANIFESTS / f"{name}.yaml", server("ml", SERVERS[name])
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()


@pytest.mark.medium
@pytest.mark.parametrize("version", ["1.29", "1.33", "1.37"])
@pytest.mark.parametrize("name", SERVERS)
def test_three_versions_of_kubernetes_accept_the_server(name: str, version: str):
    for each in yaml.safe_load_all(server("ml", SERVERS[name])):
        kubernetes_validate.validate(each, version, strict=True)


@pytest.mark.parametrize("key", ["fox.1", "Déjà vu.12", "a" * 80 + ".3", "--.1", "fox-1", "1.1"])
def test_names_are_dns_labels_and_short_enough_for_a_pods_number(key: str):
    name = Names(key, "0123456789ab").name
    assert name.replace("-", "a").isalnum()
    assert name.isascii()
    assert name == name.lower()
    assert len(f"{name}-9999") <= 63
    assert name != Names(key + "0", "0123456789ab").name != Names(key, "x").name


# ------------------------------------------------------------ options


def made(**options: Any) -> dict[str, Any]:
    gang = GANGS["least"]
    return job(gang._replace(options={**gang.options, **options}), NAMES, DISK)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("volumes", ["pvc:x"]),
        ("volumes", ["floppy:a=/a"]),
        ("volumes", ["pvc:x=relative"]),
        ("home_volume", "claim"),
        ("tolerations", ["gpu:Sometimes"]),
        ("tolerations", ["*=x"]),
        ("node_selector", ["gpu"]),
        ("resources", ["rdma/hca"]),
        ("resources", ["rdma/hca=many"]),
        ("labels", ["=x"]),
    ],
)
def test_an_invalid_option_is_refused_with_its_form(option: str, value: object):
    with pytest.raises(Refused) as caught:
        made(**{option: value})
    assert caught.value.where == option
    assert "write" in str(caught.value.hint)


def pod_of(found: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = found["spec"]["template"]["spec"]
    return spec


def test_kubernetes_expands_no_path_of_an_image():
    python = {"python": "/$(X)/python", "agent_python": "/$(X)"}
    fetched = job(
        GANGS["own disks"]._replace(options={"image": "x", **python}), NAMES, Fetched("b")
    )
    assert pod_of(fetched)["containers"][0]["command"][0] == "/$$(X)/python"
    copied = made(agent_image="y", **python)
    assert pod_of(copied)["initContainers"][0]["command"][0] == "/$$(X)/bin/python3"


def test_a_pod_of_its_own_disk_has_time_to_send_its_files_when_it_is_evicted():
    gang = GANGS["least"]._replace(grace=20)
    shared, fetched = job(gang, NAMES, DISK), job(gang, NAMES, Fetched("b"))
    assert pod_of(shared)["terminationGracePeriodSeconds"] == 30
    assert pod_of(fetched)["terminationGracePeriodSeconds"] == 90


def test_a_patch_adds_what_there_is_no_option_for():
    patch = {
        "spec": {
            "activeDeadlineSeconds": 3600,
            "template": {
                "spec": {
                    "containers": [
                        {"name": "node", "env": [{"name": "NCCL_DEBUG", "value": "INFO"}]},
                        {"name": "sidecar", "image": "s"},
                    ],
                    "securityContext": {"fsGroup": 1000},
                }
            },
        }
    }
    plain, found = made(), made(patch=patch)
    assert found["spec"]["activeDeadlineSeconds"] == 3600
    node, sidecar = pod_of(found)["containers"]
    assert node["env"] == [
        *pod_of(plain)["containers"][0]["env"],
        {"name": "NCCL_DEBUG", "value": "INFO"},
    ]
    assert node["command"] == pod_of(plain)["containers"][0]["command"]
    assert sidecar == {"name": "sidecar", "image": "s"}
    assert pod_of(found)["securityContext"] == {"fsGroup": 1000}


@pytest.mark.parametrize(
    "patch",
    [
        {"metadata": {"name": "other"}},
        {"metadata": {"labels": {"allranks/home": "other"}}},
        {"metadata": {"labels": None}},
        {"spec": {"completions": 1}},
        {"spec": {"suspend": False}},
        {"spec": {"backoffLimitPerIndex": 3}},
        {"spec": None},
        {"spec": {"template": {"spec": {"restartPolicy": "OnFailure"}}}},
        {"spec": {"template": {"spec": {"containers": [{"name": "node", "command": ["x"]}]}}}},
        {"spec": {"template": {"spec": {"containers": [{"name": "node", "$patch": "delete"}]}}}},
        {"spec": {"template": {"spec": {"containers": "none"}}}},
    ],
)
def test_a_patch_of_what_identifies_or_starts_a_gang_is_refused(patch: dict[str, Any]):
    with pytest.raises(Refused) as caught:
        made(patch=patch)
    assert caught.value.where == "patch"


@pytest.mark.parametrize(
    ("base", "patch", "goal"),
    [
        ({"a": 1, "b": 2}, {"b": None, "c": 3}, {"a": 1, "c": 3}),
        ({"a": {"b": 1}}, {"a": {"$patch": "replace", "c": 2}}, {"a": {"c": 2}}),
        ({"args": [1, 2]}, {"args": [3]}, {"args": [3]}),
        (
            {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "1"}]},
            {"env": [{"name": "B", "value": "2"}, {"name": "A", "$patch": "delete"}]},
            {"env": [{"name": "B", "value": "2"}]},
        ),
        (
            {"volumes": [{"name": "a"}]},
            {"volumes": [{"$patch": "replace"}, {"name": "b"}]},
            {"volumes": [{"name": "b"}]},
        ),
    ],
)
def test_a_merge_is_strategic(base: object, patch: object, goal: object):
    assert merged(base, patch) == goal


def test_the_printed_rights_say_what_each_optional_one_buys():
    text = rights("ml")
    head = text.partition("apiVersion")[0]
    assert all(line.startswith("# ") and len(line) <= 94 for line in head.splitlines())
    words = " ".join(head.replace("#", "").split())
    for right, where, purpose in OPTIONAL:
        assert f"- {right} ({where or 'not below'}): {purpose}" in words
    roles = {each["kind"]: each for each in yaml.safe_load_all(text) if "rules" in each}
    granted = [rule["resources"] for role in roles.values() for rule in role["rules"]]
    assert granted[-2:] == [["resourcequotas"], ["nodes"]]


@pytest.mark.parametrize("options", [{}, {"topology_spread": ["kubernetes.io/hostname"]}])
def test_replicas_of_a_deployment_rather_run_on_different_machines(options: dict[str, Any]):
    gangs = [
        Gang(f"{name}.1", 1, AGENT, ENV, options={**LEAST, **options}, apart=of)
        for name, of in (("a", "birds/blue"), ("b", "birds/blue"), ("c", "birds/green"))
    ]
    pods = [job(gang, NAMES, HOSTILE)["spec"]["template"] for gang in gangs]
    labels = [pod["metadata"]["labels"]["allranks/apart"] for pod in pods]
    assert labels[0] == labels[1] != labels[2]
    (*_, spread) = pods[0]["spec"]["topologySpreadConstraints"]
    assert spread["whenUnsatisfiable"] == "ScheduleAnyway"
    assert spread["labelSelector"]["matchLabels"] == {"allranks/apart": labels[0]}
    kubernetes_validate.validate(job(gangs[0], NAMES, HOSTILE), "1.33", strict=True)
