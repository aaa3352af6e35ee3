"""What a node's container is given, and the words that start it."""

from __future__ import annotations

import csv

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.core.environments import container
from allranks.core.environments.container import Mount
from allranks.core.job.compile import CompileContext, compile
from allranks.core.packing import pack, unpack
from allranks.core.plan import Container, InputTask, OutputTask, Task
from allranks.errors import SpecError
from allranks.spec.job import parse

PODMAN = Container("podman", "registry.example/team/trainer:1")


def job(**more: object) -> dict[str, object]:
    return {"command": "true", "name": "a", "environment": {"image": PODMAN.image}, **more}


def compiled(spec: dict[str, object], **options: object) -> Task:
    base = {"PATH": "/venv/bin:/bin", "VIRTUAL_ENV": "/venv", "HTTPS_PROXY": "http://p:1"}
    context = CompileContext(
        "a", "/home/jobs/a", ("agent",), "local", base, compute="c", options=options
    )
    return compile(parse(spec), context).task


def test_an_image_is_a_container_where_the_compute_has_one():
    resources = {
        "shm_size": "2g",
        "docker_args": "--env 'A=b c' --cap-add=IPC_LOCK -v/a:/a -eD=1 --ipc=host",
    }
    task = compiled(job(resources=resources), container="docker")
    args = ("--env", "A=b c", "--cap-add=IPC_LOCK", "-v/a:/a", "-eD=1", "--ipc=host")
    assert task.container == Container("docker", PODMAN.image, 2 << 30, args)
    # The image has paths of its own, and no word of how one gets out of this network.
    assert task.base == {"HTTPS_PROXY": "http://p:1"}
    assert unpack(Task, pack(task)) == task


def test_packages_on_top_of_an_image_are_a_recipe_beside_the_container():
    task = compiled(job(environment={"image": "a", "pip": ["b"]}), container="podman")
    assert task.container == Container("podman", "a")
    assert task.recipe is not None
    assert task.recipe.requirements == ("b",)
    given = container.mounts(task._replace(environments="/home/environments"), "/f", "/lib")
    assert Mount("/home/environments") in given, "nobody inside writes to what jobs share"


def test_without_an_image_a_compute_with_containers_is_as_any_other():
    task = compiled({"command": "true", "name": "a"}, container="podman")
    assert task.container is None
    assert task.base["VIRTUAL_ENV"] == "/venv"


@pytest.mark.parametrize(
    ("spec", "options", "said"),
    [
        (job(), {}, "the compute 'c' runs no containers"),
        (
            job(distribution={"type": "mpi"}),
            {"container": "apptainer"},
            "mpi jobs do not run under",
        ),
        (job(resources={"docker_args": "'"}), {"container": "podman"}, "No closing quotation"),
        (job(resources={"docker_args": ["-it"]}), {"container": "podman"}, "'-it' cannot be"),
        *(
            (job(resources={"docker_args": word}), {"container": "podman"}, "cannot be set")
            for word in ("--rm=false", "-d", "-dP", "-d=true", "-Pt", "--pid=host", "-u1")
        ),
        (job(environment={"image": "/a.sif"}), {"container": "podman"}, "does not run image files"),
        (job(environment={"image": "a.sif"}), {"container": "apptainer"}, "must be absolute"),
        (
            job(environment={"build": {"path": "/a"}}),
            {"container": "apptainer"},
            "does not build Dockerfiles",
        ),
    ],
)
def test_what_is_refused(spec: dict[str, object], options: dict[str, object], said: str):
    with pytest.raises(SpecError, match=said) as caught:
        compiled(spec, **options)
    assert all(problem.where for problem in caught.value.problems)


def test_mounts_are_what_the_task_names():
    task = Task(
        "a",
        "e",
        "true",
        record="/home/jobs/a",
        in_place="/code",
        inputs=(
            InputTask("text", text="1"),
            InputTask("data", source="/data/x"),
            InputTask("copied", source="/data/y", mode="download"),
            InputTask("again", source="/results"),
        ),
        outputs=(OutputTask("o", "/results"), OutputTask("f", "/files/f.txt", is_file=True)),
    )
    assert container.mounts(task, "/nodes/a.1/0/attempt-1", "/lib/allranks/agent") == [
        Mount("/code", True),
        Mount("/data/x"),
        Mount("/files", True),
        Mount("/home/jobs/a"),
        Mount("/home/jobs/a/artifacts", True),
        Mount("/lib/allranks/agent"),
        Mount("/nodes/a.1/0/attempt-1", True),
        Mount("/nodes/a.1/0/state"),
        Mount("/nodes/a.1/0/state/node-0", True),
        Mount("/nodes/a.1/0/state/shared", True),
        Mount("/results", True),
    ]


def test_the_words():
    given = [Mount("/a b"), Mount("/c", True)]
    made = PODMAN._replace(shm_size=1 << 30, args=("--env", "A=b"))
    words = container.words(made, "n", given, ["/p.sh", "/f"], env={"HOME": "/f"}, gpus=True)
    assert words == [
        *("podman", "run", "--rm", "--interactive", "--name=n", "--label=allranks"),
        *("--pull=never", "--network=host", "--log-driver=none", "--pids-limit=-1"),
        "--security-opt=label=disable",
        *("--entrypoint=/bin/bash", "--user=0:0", "--env=HOME=/f", "--shm-size=1073741824b"),
        "--device=nvidia.com/gpu=all",
        *("--mount=type=bind,src=/a b,dst=/a b,readonly", "--mount=type=bind,src=/c,dst=/c"),
        *("--env", "A=b", PODMAN.image, "/p.sh", "/f"),
    ]
    own = PODMAN._replace(args=("--publish=127.0.0.1:1:2",))
    assert "--network=host" not in container.words(own, "n", given, ["/p.sh"])


def test_the_words_of_one_that_is_a_process():
    made = PODMAN._replace(engine="apptainer", image="/i.sif", args=("--bind=/s",))
    words = container.words(made, "n", [Mount("/a")], ["/p.sh", "/f"], gpus=True, home="/f")
    assert words == [
        *("apptainer", "--silent", "--nocolor", "exec", "--containall", "--no-eval"),
        *("--home=/f", "--workdir=/f", "--nv", "--mount=type=bind,src=/a,dst=/a,readonly"),
        *("--bind=/s", "/i.sif", "/bin/bash", "/p.sh", "/f"),
    ]
    assert "--home=/a:b" not in container.words(made, "n", [], [], home="/a:b")


@given(st.text(st.characters(exclude_characters="\0\r\n", exclude_categories=["Cs"]), min_size=1))
def test_a_path_is_one_field_whatever_is_in_it(name: str):
    [word] = [w for w in container.words(PODMAN, "n", [Mount("/" + name)], []) if "--mount" in w]
    fields = next(csv.reader([word.removeprefix("--mount=")]))
    assert fields == ["type=bind", f"src=/{name}", f"dst=/{name}", "readonly"]
