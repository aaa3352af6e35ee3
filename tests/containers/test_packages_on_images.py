"""Packages on top of an image: made once inside it, then found by every job that asks for both."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.containers.conftest import IMAGE, Podman
from tests.containers.image import PYTHON
from tests.containers.test_containers import here
from tests.support import Allranks
from tests.wheels import from_wheels, wheel

__all__ = ["here"]
pytestmark = [pytest.mark.slow, pytest.mark.containers, pytest.mark.timeout(400)]
SHOW = (
    "import apple, json, os, shutil, sys\n"
    "found = {'apple': apple.version, 'from_image': os.environ.get('FROM_IMAGE')}\n"
    "found |= {'prefix': sys.prefix, 'active': os.environ['VIRTUAL_ENV']}\n"
    "found |= {'python': shutil.which('python'), 'bite': shutil.which('bite')}\n"
    "found |= {'base': sys.base_prefix, 'version': '%d.%d' % sys.version_info[:2]}\n"
    "try:\n    import pear\n    found['pear'] = pear.version\n"
    "except ImportError:\n    pass\n"
    "print(json.dumps(found))\n"
)


@pytest.fixture
def wheels(tmp_path: Path, code: Path) -> Path:
    (code / "show.py").write_text(SHOW)
    folder = tmp_path / "whe'els of mine"
    code_of = {"apple.py": "version = '1.0'\ndef bite():\n    print('bitten')\n"}
    wheel(folder, "apple", "1.0", modules=code_of, scripts={"bite": "apple:bite"})
    wheel(folder, "apple", "2.0")
    return folder


def submit(
    here: Allranks, code: Path, name: str, environment: Any, command: str = "", **resources: Any
) -> Any:
    spec = {
        "name": name,
        "code": ".",
        "environment": environment,
        "command": command or "python show.py",
    }
    spec["resources"] = resources
    (code / "job.yml").write_text(json.dumps(spec))
    return here("job", "create", "-f", "job.yml", "--stream", timeout=200)


def told(here: Allranks, code: Path, name: str, *words: Any, **resources: Any) -> Any:
    done = submit(here, code, name, *words, **resources)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def conda(wheels: Path, *lines: str) -> dict[str, Any]:
    return {"dependencies": ["mkl", {"pip": [*from_wheels(wheels, *lines)]}]}


def made(here: Allranks) -> list[Path]:
    home = Path(json.loads(here("server", "status", "--json").stdout)["home"])
    return [each for each in (home / "environments").iterdir() if each.is_dir()]


def test_a_job_has_the_image_and_the_packages(here: Allranks, code: Path, wheels: Path):
    both = {"image": IMAGE, "conda_file": conda(wheels, "apple<2")}
    found = told(here, code, "one", both)
    assert (found["apple"], found["from_image"]) == ("1.0", "yes")
    assert found["prefix"] == found["active"]
    assert found["python"] == f"{found['prefix']}/bin/python"
    assert found["bite"] == f"{found['prefix']}/bin/bite"
    first = made(here)
    assert len(first) == 1
    shutil.rmtree(wheels)
    assert told(here, code, "two", both)["apple"] == "1.0", "made once, found without any index"
    assert made(here) == first


def test_what_is_shown_has_both(here: Allranks, code: Path, wheels: Path):
    both = {"image": IMAGE, "conda_file": conda(wheels, "apple<2")}
    told(here, code, "shown", both)
    job = json.loads(here("job", "show", "shown", "--json").stdout)
    assert job["environment"]["image"] == IMAGE
    assert "apple<2" in job["environment"]["requirements"]
    assert any("mkl" in note for note in job["environment"]["notes"])
    text = here("job", "show", "shown").stdout
    assert f"the image {IMAGE} with " in text
    assert "apple<2" in text
    logs = Path(job["folder"], "artifacts", "system_logs")
    assert "apple==1.0" in (logs / "environment_node_0.txt").read_text()
    dry = here("job", "create", "-f", "job.yml", "--dry-run").stdout
    assert IMAGE in dry
    assert "apple<2" in dry
    (code / "env.json").write_text(json.dumps({"name": "both", **both}))
    assert here("environment", "create", "-f", "env.json").returncode == 0
    known = here("environment", "show", "both").stdout
    assert IMAGE in known
    assert "apple<2" in known
    assert told(here, code, "named", "azureml:both@latest")["apple"] == "1.0"


def test_every_image_has_its_own(here: Allranks, podman: Podman, code: Path, wheels: Path):
    """And what the image has already is taken from it, as pip would."""
    other = "localhost/other:1"
    context = code.parent / "other"
    (context / "pear").mkdir(parents=True)
    site = podman(
        "run", "--rm", IMAGE, "python", "-c", "import site; print(site.getsitepackages()[0])"
    )
    info = context / "pear" / "pear-1.5.dist-info"
    info.mkdir()
    (context / "pear" / "pear.py").write_text("version = '1.5, of the image'\n")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pear\nVersion: 1.5\n")
    (context / "Dockerfile").write_text(f"FROM {IMAGE}\nCOPY pear {site}\n")
    podman("build", "--tag", other, str(context))
    wheel(wheels, "plum", requires=["pear"])
    packages = list(from_wheels(wheels, "apple", "plum"))
    assert told(here, code, "has", {"image": other, "pip": packages})["pear"] == "1.5, of the image"
    done = submit(here, code, "lacks", {"image": IMAGE, "pip": packages})
    assert done.returncode != 0
    assert "pear" in done.stderr
    wheel(wheels, "pear", "2.0")
    assert (
        told(here, code, "newer", {"image": other, "pip": [*packages, "pear>=2"]})["pear"] == "2.0"
    )
    folder = {"build": {"path": str(context)}, "pip": packages}
    assert told(here, code, "built", folder)["pear"] == "1.5, of the image"


def test_packages_of_a_virtual_environment_in_the_image_are_found(
    here: Allranks, podman: Podman, code: Path, wheels: Path
):
    """As in images that were made with uv or poetry."""
    context = code.parent / "venv"
    context.mkdir()
    lines = (
        "import pathlib, venv\n"
        "venv.create('/venv')\n"
        "site = next(pathlib.Path('/venv/lib').glob('*/site-packages'))\n"
        "(site / 'pear.py').write_text(\"version = 'of the venv'\")\n"
        "info = site / 'pear-1.5.dist-info'\n"
        "info.mkdir()\n"
        "(info / 'METADATA').write_text('Metadata-Version: 2.1\\nName: pear\\nVersion: 1.5\\n')\n"
    )
    (context / "make.py").write_text(lines)
    (context / "talks").write_text("echo every shell says this\n")
    (context / "Dockerfile").write_text(
        f'FROM {IMAGE}\nCOPY make.py talks /\nRUN ["/bin/bash", "-c", "python /make.py"]\n'
        f"ENV PATH=/venv/bin:{PYTHON}:/usr/bin:/bin VIRTUAL_ENV=/venv BASH_ENV=/talks\n"
    )
    podman("build", "--tag", "localhost/venv:1", str(context))
    wheel(wheels, "plum", requires=["pear"])
    both = {"image": "localhost/venv:1", "pip": list(from_wheels(wheels, "apple<2", "plum"))}
    found = told(here, code, "venv", both)
    assert (found["apple"], found["pear"]) == ("1.0", "of the venv")


def test_what_a_job_installs_stays_its_own(here: Allranks, code: Path, wheels: Path):
    both = {"image": IMAGE, "pip": list(from_wheels(wheels, "apple<2"))}
    told(here, code, "first", both)
    place = made(here)[0]
    mine = shlex.quote(f"{place}/mine")
    line = f': >{mine}; : >"$VIRTUAL_ENV/mine" || exit; python show.py'
    assert told(here, code, "writes", both, line)["apple"] == "1.0"
    assert not (place / "mine").exists()
    assert told(here, code, "reads", both)["apple"] == "1.0"


def test_a_python_that_nobody_has_is_refused_in_one_sentence(
    here: Allranks, code: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS", "never")
    lines = list(from_wheels(wheels, "apple"))
    done = submit(here, code, "far", {"image": IMAGE, "python": "3.9", "pip": lines})
    assert done.returncode != 0
    assert "the image has no Python 3.9, and the node has none that runs there" in done.stderr
    has = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert f"the image has Python {has}" in done.stderr


def other_python() -> Path:
    """A Python of this machine of another version than the image's."""
    for minor in set(range(9, 15)) - {sys.version_info[1]}:
        beside = Path(sys.base_prefix).parent.glob(f"3.{minor}.*/bin/python3.{minor}")
        if found := [*beside, *filter(None, [shutil.which(f"python3.{minor}")])]:
            return Path(found[0])
    pytest.skip("needs a second Python")


def as_uv_has_it(python: Path, folder: Path) -> tuple[str, list[str]]:
    """Put a Python into the folder as if uv had fetched it: its version, and words for a container
    that is to find the libraries that one of uv's would bring along."""
    ask = "import sys; print('%d.%d' % sys.version_info[:2], sys.base_prefix)"
    minor, prefix = subprocess.check_output([python, "-c", ask], text=True).split()
    goal = folder / f"cpython-{minor}.99-linux-{os.uname().machine}-gnu"
    left_out = shutil.ignore_patterns("test", "site-packages", "config-*", "__pycache__")
    library = Path("lib", f"python{minor}")
    shutil.copytree(prefix / library, goal / library, ignore=left_out)
    (goal / "bin").mkdir()
    shutil.copy(Path(prefix, "bin", f"python{minor}"), goal / "bin")
    needs = subprocess.check_output(["ldd", goal / "bin" / f"python{minor}"], text=True).split()
    own = [each for each in needs if each.startswith(prefix)]
    return minor, [f"--volume={each}:{each}:ro" for each in own]


def test_a_python_that_the_node_has_is_taken_where_the_image_has_another(
    here: Allranks, code: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    folder = tmp_path / "py'thons"
    minor, args = as_uv_has_it(other_python(), folder)
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(folder))
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS", "never")
    both = {"image": IMAGE, "python": minor, "pip": list(from_wheels(wheels, "apple<2"))}
    for name in ("makes", "finds"):
        seen = told(here, code, name, both, docker_args=args)
        assert (seen["apple"], seen["version"]) == ("1.0", minor)
        assert seen["base"].startswith(str(folder))
    assert len(made(here)) == 1


def test_two_nodes_make_it_once(here: Allranks, code: Path, wheels: Path):
    both = {"image": IMAGE, "pip": list(from_wheels(wheels, "apple<2"))}
    done = submit(here, code, "two", both, instance_count=2)
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["apple"] for line in done.stdout.splitlines()] == ["1.0", "1.0"]
    assert len(made(here)) == 1


def test_a_job_that_is_canceled_does_not_wait_for_its_packages(here: Allranks, code: Path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        index = f"--index-url http://127.0.0.1:{silent.getsockname()[1]}"
        both = {"image": IMAGE, "pip": [index, "apple"]}
        spec = {"name": "waits", "command": "true", "environment": both}
        (code / "job.yml").write_text(json.dumps(spec))
        assert here("job", "create", "-f", "job.yml").returncode == 0
        silent.settimeout(60)
        asks, _ = silent.accept()
        with asks:  # uv waits for an answer that does not come
            here("job", "cancel", "waits")
            here("job", "wait", "waits", "--timeout", 60, timeout=70)
    assert json.loads(here("job", "show", "waits", "--json").stdout)["status"] == "Canceled"
    assert not made(here)


def test_packages_there_are_not_are_named(here: Allranks, code: Path, wheels: Path):
    done = submit(here, code, "none", {"image": IMAGE, "pip": [*from_wheels(wheels, "apple==9")]})
    assert done.returncode != 0
    assert "apple" in done.stderr
    assert not made(here)
