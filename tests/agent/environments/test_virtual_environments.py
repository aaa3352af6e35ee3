"""Environments on a cache: real uv, real wheels, no network."""

import hashlib
import json
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from uv import find_uv_bin

from allranks.agent.environments import virtual_environments
from allranks.agent.environments.layer import layer
from allranks.agent.environments.virtual_environments import READY, EnvironmentCache
from allranks.core.environments.activation import activated
from allranks.core.plan import Recipe
from allranks.errors import AllranksError
from tests.support import until
from tests.wheels import from_wheels, wheel

UV = find_uv_bin()


def wait(fd: int | None = None, seconds: float | None = None) -> None:
    select.select([] if fd is None else [fd], [], [], seconds)


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    folder = tmp_path / "whe'els of mine"
    wheel(folder, "apple", "1.0", scripts={"bite": "apple:bite"}, modules={
        "apple.py": "import sys\nversion = '1.0'\ndef bite():\n    print(sys.prefix)\n"
    })  # fmt: skip
    wheel(folder, "apple", "2.0")
    wheel(folder, "pear", requires=["apple<2"])
    return folder


@pytest.fixture
def cache(tmp_path: Path) -> EnvironmentCache:
    environ = {"PATH": f"{sys.prefix}/bin:/usr/bin:/bin", "HOME": str(tmp_path / "ho me")}
    return EnvironmentCache(
        tmp_path / "sh'elf x", UV, {**environ, "UV_CACHE_DIR": str(tmp_path / "cache")}
    )


def python(prefix: Path, code: str) -> str:
    done = subprocess.run(
        [prefix / "bin" / "python", "-c", code], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_it_is_made_once_and_then_found(cache, wheels):
    recipe, said = Recipe(requirements=from_wheels(wheels, "pear")), []
    assert cache.find(recipe) is None
    made = cache.provide(recipe, wait, said.append)
    assert made.packages["apple"] == "1.0"
    assert "pip" in made.packages, "jobs may want it"
    assert python(made.folder, "import apple, pear; print(apple.version)") == "1.0"
    assert any("Installed 3 packages" in line for line in said)
    assert "Installed 3 packages" in cache.log(recipe).read_text()
    said.clear()
    assert cache.provide(recipe, wait, said.append) == cache.find(recipe) == made
    assert said == []


def test_what_it_is_called_makes_no_difference(cache):
    one, other = Recipe("3.11", ("x",)), Recipe("3.11", ("x",), notes=("n",))
    assert cache.path(one) == cache.path(other)
    several = [
        one,
        one._replace(python="3.10"),
        one._replace(requirements=("y",)),
        one._replace(constraints=("y",)),
        one._replace(torch_backend="cpu"),
    ]
    assert len({cache.path(each) for each in several}) == len(several)


@pytest.mark.parametrize("is_exact", [True, False])
def test_for_a_list_of_all_packages_uv_need_not_search_the_nodes_own_python(
    tmp_path, wheels, is_exact
):
    own = tmp_path / f"python{sys.version_info.major}.{sys.version_info.minor}"
    started = tmp_path / "started"
    python = shlex.quote(os.path.realpath(sys.executable))
    own.write_text(f'#!/bin/sh\n: >{shlex.quote(str(started))}\nexec {python} "$@"\n')
    own.chmod(0o755)
    # Only a path leads uv there.
    environ = {"PATH": f"{sys.prefix}/bin:/usr/bin:/bin", "HOME": str(tmp_path / "home")}
    environ |= {"ALLRANKS_PYTHON": str(own), "UV_CACHE_DIR": str(tmp_path / "cache")}
    lines = from_wheels(wheels, "apple==1.0")
    recipe = Recipe(own.name.removeprefix("python"), lines, exact=is_exact)
    made = EnvironmentCache(tmp_path / "made", UV, environ).provide(recipe, wait, print)
    assert made.packages["apple"] == "1.0"
    assert started.exists() == is_exact


def test_without_an_nvidia_gpu_tensorflow_comes_without_cuda(cache, wheels, tmp_path, monkeypatch):
    wheel(wheels, "tensorflow", requires=["pear; extra == 'and-cuda'"])
    recipe = Recipe(requirements=from_wheels(wheels, "tensorflow[and-cuda]"))
    driver = tmp_path / "driver"
    monkeypatch.setattr(virtual_environments, "_NVIDIA", driver)
    monkeypatch.setattr(virtual_environments, "_DRIVERS", (driver,))

    def has_cuda(backend: str) -> bool:
        found = cache.provide(recipe._replace(torch_backend=backend), wait, print)
        return "pear" in found.packages

    assert has_cuda("cpu")
    assert not has_cuda("auto")
    driver.write_text("580\n")
    assert has_cuda("auto")


def test_an_optional_package_that_does_not_fit_is_left_out(cache, wheels):
    wheel(wheels, "torch", "2.13.0+cpu")
    wheel(wheels, "torchvision", "0.28.0")
    lines = from_wheels(wheels, "torch==2.13.0", "torchvision")
    made = cache.provide(Recipe(requirements=lines, optional=("torchvision",)), wait, print)
    assert made.left_out == ("torchvision",)
    assert "torchvision" not in made.packages
    assert made.packages["torch"] == "2.13.0+cpu"
    wheel(wheels, "torchvision", "0.28.1+cpu")
    lines = from_wheels(wheels, "torch==2.13.0", "torchvision>0.28.0")
    made = cache.provide(Recipe(requirements=lines, optional=("torchvision",)), wait, print)
    assert (made.left_out, made.packages["torchvision"]) == ((), "0.28.1+cpu")


def test_constraints_hold(cache, wheels):
    recipe = Recipe(requirements=from_wheels(wheels, "apple"), constraints=("apple<2",))
    assert cache.provide(recipe, wait, lambda line: None).packages["apple"] == "1.0"
    assert cache.provide(recipe._replace(constraints=()), wait, print).packages["apple"] == "2.0"


def test_nothing_of_ours_leaks_in(cache, wheels):
    made = cache.provide(Recipe(requirements=from_wheels(wheels, "pear")), wait, print)
    code = "import importlib.util as u; print(u.find_spec('allranks'), u.find_spec('pytest'))"
    assert python(made.folder, code) == "None None"


def test_two_who_want_it_at_once_make_it_once(cache, wheels):
    recipe = Recipe(requirements=from_wheels(wheels, "pear"))
    messages: list[list[str]] = [[], [], []]
    threads = [
        threading.Thread(target=cache.provide, args=(recipe, wait, each.append))
        for each in messages
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    others = [lines for lines in messages if lines and lines[0].startswith("waits for")]
    makers = [lines for lines in messages if lines and lines not in others]
    assert len(makers) == 1
    assert cache.find(recipe) is not None


@pytest.mark.medium
def test_waiting_follows_the_log_of_the_build(cache, wheels, tmp_path):
    """The builder uses a uv that waits for us."""
    recipe = Recipe(requirements=from_wheels(wheels, "pear"))
    slow = tmp_path / "slow-uv"
    go = tmp_path / "go"
    slow.write_text(
        f"#!/bin/bash\necho Resolved by the other\n"
        f'until [ -e {shlex.quote(str(go))} ]; do sleep 0.02; done\nexec {shlex.quote(UV)} "$@"\n'
    )
    slow.chmod(0o755)
    other = EnvironmentCache(cache._folder, str(slow), cache._environ)
    maker = threading.Thread(target=other.provide, args=(recipe, wait, lambda line: None))
    maker.start()
    messages: list[str] = []
    waiter = threading.Thread(target=cache.provide, args=(recipe, wait, messages.append))
    until(lambda: cache.log(recipe).exists())
    waiter.start()
    until(lambda: len(messages) > 1)
    go.touch()
    maker.join()
    waiter.join()
    assert messages[:2] == [
        "waits for the environment, which another process is building",
        "builds the environment: Resolved by the other",
    ]


KILLED = """
import select, sys
from pathlib import Path
from allranks.agent.environments.virtual_environments import EnvironmentCache
from allranks.core.plan import Recipe
def wait(fd=None, seconds=None):
    select.select([] if fd is None else [fd], [], [], seconds)
folder, uv, home, *lines = sys.argv[1:]
environ = {"PATH": sys.prefix + "/bin:/usr/bin:/bin", "HOME": home}
EnvironmentCache(Path(folder), uv, environ).provide(Recipe(requirements=tuple(lines)), wait, print)
"""


@pytest.mark.medium
def test_a_killed_build_is_not_taken_for_complete(cache, wheels, tmp_path):
    recipe = Recipe(requirements=from_wheels(wheels, "pear"))
    stuck = tmp_path / "stuck-uv"
    stuck.write_text(
        f'#!/bin/bash\n[ "$1" = venv ] && exec {shlex.quote(UV)} "$@"\n'
        f"touch {shlex.quote(str(tmp_path / 'here'))}\nexec sleep 60\n"
    )
    stuck.chmod(0o755)
    words = [str(cache._folder), str(stuck), str(tmp_path), *recipe.requirements]
    child = subprocess.Popen([sys.executable, "-c", KILLED, *words])
    goal = cache.path(recipe)
    until((tmp_path / "here").exists)
    assert [*goal.parent.glob("*/requirements-0.txt")]
    child.kill()
    child.wait()
    assert not goal.exists()
    assert cache.find(recipe) is None
    # Its uv still runs and may write: the next build waits for its end.
    left = [each for each in _holding(goal.with_suffix(".lock")) if each != os.getpid()]
    assert len(left) == 1
    messages: list[str] = []
    after = threading.Thread(target=cache.provide, args=(recipe, wait, messages.append))
    after.start()
    until(lambda: messages)
    assert "waits for" in messages[0]
    os.kill(left[0], signal.SIGKILL)
    after.join()
    made = cache.find(recipe)
    assert made is not None
    assert python(made.folder, "import pear") == ""
    assert [*goal.parent.glob(f"{goal.name}.*/")] == [], "what it left is gone"


def _holding(path: Path) -> list[int]:
    found = []
    for fd in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if os.readlink(fd) == str(path):
                found.append(int(fd.parts[2]))
        except OSError:
            continue
    return sorted(set(found))


class Enough(Exception):
    pass


def test_a_build_can_be_stopped(cache, wheels, tmp_path):
    slow = tmp_path / "slow-uv"
    slow.write_text("#!/bin/bash\necho Resolved 1\nexec sleep 60\n")
    slow.chmod(0o755)
    recipe = Recipe(requirements=from_wheels(wheels, "pear"))
    began = time.monotonic()

    def not_for_long(fd: int | None = None, seconds: float | None = None) -> None:
        if messages:
            raise Enough
        wait(fd, 1.0)

    messages: list[str] = []
    with pytest.raises(Enough):
        EnvironmentCache(cache._folder, str(slow), cache._environ).provide(
            recipe, not_for_long, messages.append
        )
    assert time.monotonic() - began < 30
    assert not cache.path(recipe).exists()
    assert _holding(cache.path(recipe).with_suffix(".lock")) == []
    assert cache.provide(recipe, wait, messages.append)


def test_an_environment_whose_python_is_gone_is_rebuilt(cache, wheels):
    recipe = Recipe(requirements=from_wheels(wheels, "pear"))
    made = cache.provide(recipe, wait, print)
    (made.folder / "bin" / "python").unlink()
    (made.folder / "bin" / "python").symlink_to("/nonexistent/python")
    assert cache.find(recipe) is None
    assert python(cache.provide(recipe, wait, print).folder, "import pear") == ""


def test_a_truncated_ready_file_is_ignored(cache, wheels):
    recipe = Recipe(requirements=from_wheels(wheels, "pear"))
    made = cache.provide(recipe, wait, print)
    (made.folder / READY).write_text('{"python": "3.1')
    assert cache.find(recipe) is None
    assert json.loads((cache.provide(recipe, wait, print).folder / READY).read_text())


@pytest.mark.skipif(os.getuid() != 0, reason="a full disk is a small tmpfs, which root can mount")
@pytest.mark.medium
def test_a_full_disk(cache, wheels, tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", small], check=True)
    try:
        full = EnvironmentCache(small / "cache", UV, cache._environ)
        recipe = Recipe(requirements=from_wheels(wheels, "pear"))
        with pytest.raises((AllranksError, OSError), match=r"(?i)no space left") as caught:
            full.provide(recipe, wait, print)
        if isinstance(caught.value, AllranksError):
            assert "free space" in (caught.value.hint or "")
        assert full.find(recipe) is None
        assert not full.path(recipe).exists()
    finally:
        subprocess.run(["umount", small], check=True)


@pytest.mark.parametrize(
    ("lines", "said", "hint"),
    [
        (("apple==1.5",), "apple==1.5 cannot be installed .*does not exist", "apple==2.0"),
        (("apple==9",), "apple==9 cannot be installed", "environment map apple==9 apple==2.0"),
        (("plum",), "package 'plum' not found in any index", "--extra-index-url"),
        (("pear", "apple>=2"), "pear.* depends? on apple<2", "relax"),
    ],
)
def test_missing_packages(cache, wheels, lines, said, hint):
    recipe = Recipe(requirements=from_wheels(wheels, *lines))
    with pytest.raises(AllranksError, match=said) as caught:
        cache.provide(recipe, wait, print)
    assert hint in (caught.value.hint or "")
    assert not cache.path(recipe).exists()


def test_a_version_built_for_another_python(cache, tmp_path):
    folder = tmp_path / "wheels"
    wheel(folder, "apple", "1.6.0", tag="cp36-cp36m-manylinux1_x86_64")
    wheel(folder, "apple", "2.1.0")
    with pytest.raises(AllranksError, match=r"wheels for Python 3\.6 only") as caught:
        cache.provide(Recipe(requirements=from_wheels(folder, "apple==1.6.0")), wait, print)
    assert "the nearest installable version is apple==2.1.0" in (caught.value.hint or "")


def test_a_missing_python(cache):
    environ = {**cache._environ, "UV_PYTHON_DOWNLOADS": "never"}
    recipe = Recipe(python="3.6", requirements=("--no-index",))
    with pytest.raises(AllranksError, match=r"Python 3\.6 is not on the node") as caught:
        EnvironmentCache(cache._folder, UV, environ).provide(recipe, wait, print)
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert f"environment map python=3.6 {here}" in (caught.value.hint or "")


def test_no_uv(cache):
    with pytest.raises(AllranksError, match="cannot start uv"):
        EnvironmentCache(cache._folder, "/nonexistent/uv", cache._environ).provide(
            Recipe(python="3.11"), wait, print
        )


@pytest.mark.medium
def test_a_node_without_the_python_builds_its_own(cache, wheels):
    """Two nodes with a common disk, and Python at different paths."""
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    recipe = Recipe(here, from_wheels(wheels, "pear"))
    theirs = cache.provide(recipe, wait, print)
    link = theirs.folder / "bin" / "python"
    goal = os.readlink(link)
    link.unlink()
    link.symlink_to("/of/another/node/python")
    ours = cache.provide(recipe, wait, print)
    assert ours.folder != theirs.folder
    assert python(ours.folder, "import pear") == ""
    assert cache.provide(recipe, wait, print) == cache.find(recipe) == ours
    link.unlink()
    link.symlink_to(goal)
    assert python(theirs.folder, "import pear") == ""


def test_project_settings_are_ignored(cache, wheels, monkeypatch):
    folder = cache._folder
    folder.mkdir()
    (folder.parent / "pyproject.toml").write_text(
        '[project]\nname="x"\nversion="1"\n[tool.uv]\noverride-dependencies = ["apple==1.0"]\n'
    )
    monkeypatch.chdir(folder.parent)
    made = cache.provide(Recipe(requirements=from_wheels(wheels, "apple>=2")), wait, print)
    assert made.packages["apple"] == "2.0"


@pytest.mark.medium
def test_settings_that_affect_packages_change_the_path(cache, wheels, tmp_path):
    recipe = Recipe(requirements=from_wheels(wheels, "apple"))
    lowest = EnvironmentCache(cache._folder, UV, {**cache._environ, "UV_RESOLUTION": "lowest"})
    assert lowest.provide(recipe, wait, print).packages["apple"] == "1.0"
    assert cache.provide(recipe, wait, print).packages["apple"] == "2.0"
    limits = tmp_path / "limits.txt"
    limits.write_text("apple<2\n")
    held = EnvironmentCache(cache._folder, UV, {**cache._environ, "PIP_CONSTRAINT": str(limits)})
    assert held.provide(recipe, wait, print).packages["apple"] == "1.0"
    patient = EnvironmentCache(cache._folder, UV, {**cache._environ, "UV_HTTP_TIMEOUT": "99"})
    assert patient.path(recipe) == cache.path(recipe)


@pytest.mark.parametrize("option", [(), ("--require-hashes",)])
def test_with_hashes(cache, wheels, option):
    """Also where limits of ours, which have none, stand beside them."""
    (own,) = wheels.glob("apple-1.0-*.whl")
    line = f"apple==1.0 --hash=sha256:{hashlib.sha256(own.read_bytes()).hexdigest()}"
    requirements = (*option, *from_wheels(wheels, line))
    recipe = Recipe(requirements=requirements, constraints=("pear<=2",))
    made = cache.provide(recipe, wait, print)
    assert {"apple", "pip"} <= made.packages.keys()


def test_a_range_is_named_as_written(cache, tmp_path):
    folder = tmp_path / "wheels"
    for version in ("1.6.0", "1.6.1"):
        wheel(folder, "apple", version, tag="cp36-cp36m-manylinux1_x86_64")
    wheel(folder, "apple", "2.1.0")
    recipe = Recipe(requirements=from_wheels(folder, "apple>=1.6,<1.7"))
    with pytest.raises(AllranksError, match="cannot be installed for Python") as caught:
        cache.provide(recipe, wait, print)
    assert "map 'apple>=1.6,<1.7' apple==2.1.0" in (caught.value.hint or "")


def test_passwords_are_in_no_log(cache):
    index = "http://me:hunter2@127.0.0.1:9/simple"
    environ = {**cache._environ, "UV_HTTP_RETRIES": "0", "PIP_CONFIG_FILE": "/dev/null"}
    own = EnvironmentCache(cache._folder, UV, environ)
    recipe = Recipe(requirements=(f"--index-url {index}", "apple"))
    with pytest.raises(AllranksError) as caught:
        own.provide(recipe, wait, print)
    assert "hunter2" not in own.log(recipe).read_text() + str(caught.value)


# ---------------------------------------------------------------- layers


@pytest.fixture
def front(cache, wheels, tmp_path) -> Path:
    recipe = Recipe(requirements=from_wheels(wheels, "pear"))
    goal = tmp_path / "attempt $1" / "env"
    goal.parent.mkdir()
    layer(cache.provide(recipe, wait, print).folder, goal)
    return goal


def test_a_layer_finds_the_shared_packages(front):
    assert python(front, "import apple, sys; print(apple.version, sys.prefix)") == f"1.0 {front}"
    env = activated({"PATH": "/usr/bin:/bin"}, str(front), {})
    done = subprocess.run(["bite"], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(front), "its programs run in the layer, too"
    script = f"source '{front}/bin/activate' && python -c 'import pear, sys; print(sys.prefix)'"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(front)


@pytest.mark.medium
def test_data_files_stay_in_the_layer(cache, tmp_path):
    folder = tmp_path / "wheels"
    for version in ("1.0", "2.0"):
        data = f"datum-{version}.data/data/share/datum"
        wheel(folder, "datum", version, modules={f"{data}/{each}": version for each in "ab"})
    recipe = Recipe(requirements=from_wheels(folder, "datum==1.0"))
    made = cache.provide(recipe, wait, print)
    front = tmp_path / "front"
    layer(made.folder, front)
    assert (front / "share/datum/a").read_text() == "1.0"
    env = activated({"PATH": "/usr/bin:/bin"}, str(front), {})
    words = ["pip", "install", "--no-index", "--find-links", folder, "datum==2.0"]
    subprocess.run(words, env=env, check=True, capture_output=True)
    assert (front / "share/datum/a").read_text() == "2.0"
    assert (made.folder / "share/datum/a").read_text() == "1.0"


def test_a_layer_without_pip_refuses_pip(cache, tmp_path):
    bare = tmp_path / "bare"
    subprocess.run([UV, "venv", "--relocatable", "-q", bare], check=True, env=cache._environ)
    layer(bare, tmp_path / "front")
    env = activated({"PATH": "/usr/bin:/bin"}, str(tmp_path / "front"), {})
    done = subprocess.run(["pip", "install", "x"], env=env, capture_output=True, text=True)
    assert done.returncode == 1
    assert "hint:" in done.stderr


def test_a_rank_of_another_locale_finds_its_packages(cache, wheels, tmp_path):
    own = EnvironmentCache(tmp_path / "hé ü", UV, cache._environ)
    recipe = Recipe(requirements=from_wheels(wheels, "pear"))
    front = tmp_path / "front"
    layer(own.provide(recipe, wait, print).folder, front)
    env = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    words = [front / "bin" / "python", "-c", "import pear"]
    assert subprocess.run(words, env=env, capture_output=True).returncode == 0


@pytest.mark.medium
def test_installed_packages_stay_in_the_layer(cache, wheels, front):
    env = {**activated({"PATH": "/usr/bin:/bin"}, str(front), {}), "HOME": str(front)}
    words = ["pip", "install", "--no-index", "--find-links", wheels, "apple==2.0"]
    subprocess.run(words, env=env, check=True, capture_output=True)
    assert python(front, "import apple; print(apple.version)") == "2.0"
    behind = cache.find(Recipe(requirements=from_wheels(wheels, "pear")))
    assert behind is not None
    assert python(behind.folder, "import apple; print(apple.version)") == "1.0"
    shutil.rmtree(front)
    assert python(behind.folder, "import pear") == ""
