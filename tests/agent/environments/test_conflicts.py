"""All conflicts of an environment are reported at once: real uv, real wheels, no network."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from uv import find_uv_bin

from allranks.agent.environments import source_builds
from allranks.agent.environments.conflicts import ALLOW, Conflict, Conflicting, collect, parent_of
from allranks.agent.environments.virtual_environments import EnvironmentCache
from allranks.core.environments.packages import replaced
from allranks.core.plan import Recipe
from allranks.errors import AllranksError
from tests.agent.environments.test_virtual_environments import wait
from tests.wheels import from_wheels, machine_tag, source, wheel

HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
OLD = "cp36-cp36m-manylinux1_x86_64"


@pytest.fixture
def cache(tmp_path: Path) -> EnvironmentCache:
    environ = {
        "PATH": f"{sys.prefix}/bin:/usr/bin:/bin",
        "HOME": str(tmp_path / "ho me"),
        "UV_CACHE_DIR": str(tmp_path / "uv cache"),
        "UV_PYTHON_DOWNLOADS": "never",
    }
    return EnvironmentCache(tmp_path / "ca'che x", find_uv_bin(), environ)


def refused(cache: EnvironmentCache, recipe: Recipe) -> AllranksError:
    with pytest.raises(AllranksError) as caught:
        cache.provide(recipe, wait, print)
    assert not cache.path(recipe).exists()
    return caught.value


def pairs(error: AllranksError) -> dict[str, str]:
    """The replacements in the hint's command."""
    words = shlex.split(
        str(error.hint).partition("environment map ")[2].partition(" (")[0].partition(";")[0]
    )
    return dict(zip(words[::2], words[1::2], strict=True))


def unbuildable(folder: Path, name: str, version: str) -> None:
    source = folder / f"{name}-{version}"
    source.mkdir()
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "broken"\nbackend-path = ["."]\n'
        f'[project]\nname = "{name}"\nversion = "{version}"\n'
    )
    (source / "broken.py").write_text("def build_wheel(*a, **k):\n    raise SystemExit(1)\n")
    words = ["tar", "czf", f"{source.name}.tar.gz", source.name]
    subprocess.run(words, cwd=folder, check=True)


@pytest.mark.medium
def test_one_command_resolves_an_environment_of_2020(cache, tmp_path):
    folder = tmp_path / "whe'els"
    wheel(folder, "torch", "1.6.0", tag=OLD)
    wheel(folder, "torch", "1.13.0")
    wheel(folder, "torch", "2.0.1")
    wheel(folder, "torchvision", "0.7.0", tag=OLD, requires=["torch==1.6.0"])
    wheel(folder, "torchvision", "0.14.0", tag=OLD, requires=["torch==1.13.0"])
    wheel(folder, "torchvision", "0.15.2", requires=["torch==2.0.1"])
    unbuildable(folder, "horovod", "0.19.5")
    lines = from_wheels(folder, "torch==1.6.0", "torchvision==0.7.0", "horovod==0.19.5", "fig==9")
    wheel(folder, "fig", "1.0")
    error = refused(cache, Recipe("3.6.2", lines))
    for text in ("Python 3.6.2 is not on the node", "torch==1.6.0", "horovod==0.19.5", "fig==9"):
        assert text in error.message
    assert "resolves all of them" in str(error.hint)
    replacements = pairs(error)
    assert replacements == {
        "python=3.6.2": HERE,
        "torch==1.6.0": "torch==2.0.*",
        "horovod==0.19.5": "none",
        "fig==9": "fig==1.0",
    }
    settled = Recipe(replacements["python=3.6.2"], replaced(lines, replacements.get).lines)
    packages = cache.provide(settled, wait, print).packages
    assert (packages["torch"], packages["torchvision"]) == ("2.0.1", "0.15.2")


@pytest.mark.medium
def test_what_needs_a_compiler_is_not_built_unless_that_is_allowed(cache, tmp_path):
    folder = tmp_path / "wheels"
    started = [source(folder, name, "1.0") for name in ("grain", "hull", "moss")]
    for name in ("grain", "hull"):
        wheel(folder, name, "2.0", tag=machine_tag())
    wheel(folder, "moss", "2.0")
    lines = from_wheels(folder, "grain==1.0", "hull==1.0", "moss==1.0")
    error = refused(cache, Recipe(requirements=lines))
    assert pairs(error) == {"grain==1.0": "grain==2.0", "hull==1.0": "hull==2.0"}
    assert "grain==1.0 cannot be installed" in error.message
    assert str(error.hint).endswith(f"can take many minutes: {ALLOW}")
    assert not started[0].exists()
    assert not started[1].exists()
    allowed = cache.provide(Recipe(requirements=lines, allow_builds=True), wait, print)
    assert (allowed.packages["grain"], allowed.packages["hull"]) == ("1.0", "1.0")
    assert cache.find(Recipe(requirements=lines)) == allowed, "built once, it is there for all"


def test_a_quick_build_is_announced(cache, tmp_path):
    folder = tmp_path / "wheels"
    source(folder, "moss", "1.0")
    wheel(folder, "moss", "2.0")
    texts: list[str] = []
    recipe = Recipe(requirements=from_wheels(folder, "moss==1.0"))
    assert cache.provide(recipe, wait, texts.append).packages["moss"] == "1.0"
    assert any("from source" in text and "moss==1.0" in text for text in texts)


def test_a_build_that_takes_too_long_is_stopped(cache, tmp_path, monkeypatch):
    monkeypatch.setattr(source_builds, "LIMIT", 0.5)
    folder = tmp_path / "wheels"
    source(folder, "moss", "1.0", before="import signal; signal.pause()")
    error = refused(cache, Recipe(requirements=from_wheels(folder, "moss==1.0")))
    assert "building moss==1.0 from source takes more than 0.5 s" in error.message
    assert "--allow-builds" in str(error.hint)


def test_a_build_that_only_tells_the_metadata_is_announced_and_stopped(
    cache, tmp_path, monkeypatch
):
    monkeypatch.setattr(source_builds, "LIMIT", 0.5)
    folder = tmp_path / "wheels"
    source(folder, "moss", "1.0", before="import signal; signal.pause()", static=False)
    wheel(folder, "tree", "1.0", requires=["moss"])
    texts: list[str] = []
    with pytest.raises(AllranksError, match=r"building moss==1\.0 from source takes more"):
        cache.provide(Recipe(requirements=from_wheels(folder, "tree")), wait, texts.append)
    assert any("from source, to read its metadata: moss==1.0" in text for text in texts)


def test_a_version_that_a_dependency_requires(cache, tmp_path):
    folder = tmp_path / "wheels"
    wheel(folder, "apple", "1.0")
    wheel(folder, "pear", "1.0", requires=["apple==1.6"])
    wheel(folder, "pear", "1.1", requires=["apple==1.0"])
    error = refused(cache, Recipe(requirements=from_wheels(folder, "pear==1.0", "apple")))
    assert "apple==1.6, which pear requires" in error.message
    assert "write that" not in str(error.hint)
    assert pairs(error) == {"pear==1.0": "pear"}
    wheel(folder, "plum", "1.0", requires=["apple==1.6"])
    error = refused(cache, Recipe(requirements=from_wheels(folder, "plum")))
    assert "environment map plum" not in str(error.hint)
    assert "another version of plum" in str(error.hint)


def test_a_conflict_and_an_error_without_replacement():
    first = Conflicting(Conflict("a==1 is gone", "take a==2", "a==1", "a==2"))

    def check(lines: object) -> None:
        assert lines == ("a==2",)
        raise AllranksError("cannot build the environment: b and c disagree")

    found = collect(first, ["a==1"], check).error(first)
    assert found.message.endswith("a==1 is gone; and after these, b and c disagree")
    assert "resolves most of them: allranks environment map a==1 a==2" in str(found.hint)
    alone = collect(first, ["a==1"], lambda lines: None).error(first)
    assert (alone.message, alone.hint) == (first.message, first.hint)


def test_collect_ends():
    def check(lines: object) -> None:
        raise Conflicting(Conflict("a==2 is gone", "take", "a==1", "a==2"))

    first = Conflicting(Conflict("a==1 is gone", "take", "a==1", "a==2"))
    assert "resolves most of them" in str(collect(first, ["a==1"], check).error(first).hint)


@pytest.mark.parametrize(
    ("output", "parent"),
    [
        ("and pear<=1.0 depends on apple==1.6, we can", "pear"),
        ("and all versions of plum depend\n         on apple==1.6, we can", "plum"),
        ("because you require apple==1.6", ""),
    ],
)
def test_parent_of(output: str, parent: str):
    assert parent_of("apple", output) == parent
