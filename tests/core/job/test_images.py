"""What a job's image means where every node runs in one."""

from __future__ import annotations

import pytest

from allranks.core.job.compile import CompileContext, compile
from allranks.core.job.images import portable
from allranks.core.plan import Plan
from allranks.errors import SpecError
from allranks.spec.job import parse


def compiled(*, images: bool = True, **keys: object) -> Plan:
    base = {"PATH": "/venv/bin:/bin", "VIRTUAL_ENV": "/venv", "HTTPS_PROXY": "http://p:1"}
    options = {"image": "the-computes", "shm_size": "1g"}
    context = CompileContext(
        "a", "/home/jobs/a", ("agent",), "e", base, compute="c", options=options, images=images
    )
    return compile(parse({"command": "true", "name": "a", **keys}), context)


def test_without_an_image_of_its_own_a_job_has_the_computes():
    plan = compiled()
    assert plan.gang.options == {"image": "the-computes", "shm_size": "1g"}
    # Paths of the submitter's machine mean nothing in it.
    assert plan.task.base == {"HTTPS_PROXY": "http://p:1"}
    assert plan.task.recipe is plan.task.container is None


def test_a_jobs_own_image_and_shared_memory_count_before_the_computes():
    plan = compiled(environment={"image": "own"}, resources={"shm_size": "8g"})
    assert plan.gang.options == {"image": "own", "shm_size": "8g"}
    assert plan.task.recipe is plan.task.container is None


@pytest.mark.parametrize("images", [True, False])
@pytest.mark.parametrize("size", ["lots", "9zz", "4"])
def test_a_size_of_shared_memory_that_is_none_is_refused_on_every_engine(images: bool, size: str):
    with pytest.raises(SpecError) as caught:
        compiled(resources={"shm_size": size}, images=images)
    (problem,) = caught.value.problems
    assert problem.located() == f"resources.shm_size: {size!r} is not an amount of memory"
    assert "4g, 512m" in str(problem.hint)


def test_packages_beside_an_image_are_made_on_top():
    plan = compiled(environment={"image": "own", "pip": ["numpy"]})
    assert plan.gang.options["image"] == "own"
    assert plan.task.recipe is not None
    assert plan.task.recipe.requirements == ("numpy",)


def test_a_dockerfile_is_refused():
    with pytest.raises(SpecError) as caught:
        compiled(environment={"build": {"path": "."}})
    (problem,) = caught.value.problems
    assert problem.where == "environment.build"
    assert "push" in str(problem.hint)


def test_files_of_the_submitters_machine_are_not_looked_for_in_an_image():
    tools = {
        "SSL_CERT_FILE": "/etc/ssl/certs/ca-certificates.crt",
        "PIP_FIND_LINKS": "file:///opt/wheels",
        "PIP_CONFIG_FILE": "~/pip.conf",
        "UV_INDEX_URL": "https://pypi.example.com/simple",
        "PIP_DEFAULT_TIMEOUT": "180",
    }
    assert [*portable(tools, images=True)] == ["UV_INDEX_URL", "PIP_DEFAULT_TIMEOUT"]
    assert portable(tools, images=False) == tools
