"""Jobs of a client whose Python the server's machine does not have."""

import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from uv import find_uv_bin

from tests.support import CLI, Allranks
from tests.wheels import wheel

pytestmark = pytest.mark.slow
Submit = Callable[..., "subprocess.CompletedProcess[str]"]
SHOW = """
import importlib.metadata, shutil, sys, apple, pear
version = importlib.metadata.version("pear")
print("runs", apple.version, pear.__file__, version, shutil.which("bite"))
"""


@pytest.fixture
def laptop(tmp_path: Path) -> Path:
    """What the client alone sees: an environment with a package whose wheel is gone, and one in
    development."""
    folder = tmp_path / "lap top"
    (folder / "src").mkdir(parents=True)
    prefix = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", prefix], check=True)
    file = wheel(folder, "apple", scripts={"bite": "apple:version"})
    install(prefix, file)
    file.unlink()
    (folder / "src" / "pear.py").write_text("")
    (site,) = prefix.glob("lib/python3*/site-packages")
    info = site / "pear-2.0.dist-info"
    info.mkdir()
    origin = {"url": (folder / "src").as_uri(), "dir_info": {"editable": True}}
    texts = {
        "METADATA": "Metadata-Version: 2.1\nName: pear\nVersion: 2.0\n",
        "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "INSTALLER": "pip\n",
        "direct_url.json": json.dumps(origin),
    }
    for name, text in texts.items():
        (info / name).write_text(text)
    (site / "_pear.pth").write_text(f"{folder}/src\n")
    rows = ["_pear.pth", *(f"{info.name}/{name}" for name in (*texts, "RECORD"))]
    (info / "RECORD").write_text("".join(f"{row},,\n" for row in rows))
    return folder


def install(prefix: Path, *words: object) -> None:
    argv = [find_uv_bin(), "pip", "install", "--no-index", "--python", prefix, *words]
    subprocess.run([str(word) for word in argv], check=True, capture_output=True)


@pytest.fixture
def submit(
    allranks: Allranks, home: Path, code: Path, laptop: Path, tmp_path: Path
) -> Iterator[Submit]:
    """`allranks` on the laptop, with the server of a machine that does not see the laptop's disk.
    The server's mounts are its own."""
    hide = f"mount -t tmpfs none {shlex.quote(str(laptop))}"
    start = shlex.join([sys.executable, "-c", CLI, "server", "start"])
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("mount namespaces need root and util-linux")
    argv = ["unshare", "--mount", "sh", "-c", f"{hide} && exec {start}"]
    done = subprocess.run(argv, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"no mount namespaces here: {done.stderr}")
    assert done.returncode == 0, done.stderr
    (code / "show.py").write_text(SHOW)
    env = {
        "ALLRANKS_SERVER": json.loads((home / "server.json").read_text())["url"],
        "ALLRANKS_TOKEN": (home / "token").read_text(),
        "ALLRANKS_HOME": str(tmp_path / "home of the laptop"),
        "VIRTUAL_ENV": str(laptop / "venv"),
    }

    def run(*words: object) -> "subprocess.CompletedProcess[str]":
        return allranks(*words, env=env)

    yield run
    assert allranks("server", "stop").returncode == 0


def shown(submit: Submit, done: "subprocess.CompletedProcess[str]") -> Any:
    name = done.stderr.partition(":")[0].split()[-1]
    return json.loads(submit("job", "show", name, "--json").stdout)["environment"]


def test_it_is_made_again_on_the_node_and_job_show_says_so(submit, laptop):
    done = submit("run", "--", "python", "show.py")
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("runs"))
    assert line.startswith("runs 1.0 ")
    assert "/packages/pear/pear.py 2.0 " in line, "what was sent with the code"
    assert str(laptop) not in line
    assert "/environment/bin/bite" in line
    (python,) = shown(submit, done)["pythons"]
    assert python["packages"] == 2
    assert str(laptop) not in python["path"]
    name = done.stderr.partition(":")[0].split()[-1]
    assert "built from your current environment: 2 packages" in submit("job", "show", name).stdout
    # The source is no part of the environment: an edit builds none.
    (laptop / "src" / "pear.py").write_text("changed = True\n")
    done = submit("run", "--", "python", "-c", "import pear; print(pear.changed)")
    assert done.stdout.splitlines()[-1].endswith("True"), done.stdout + done.stderr
    assert "builds the environment" not in done.stderr


def test_a_restart_with_other_code_brings_the_packages_of_now(submit, laptop, code):
    name = json.loads(submit("run", "--json", "--", "python", "show.py").stdout)["name"]
    install(laptop / "venv", wheel(laptop, "cherry"))
    (code / "show.py").write_text("import apple, cherry; print('now', cherry.version)\n")
    done = submit("job", "restart", name, "-C", code, "--stream")
    assert done.returncode == 0, done.stderr
    assert "now 1.0" in done.stdout


def test_what_no_index_has_is_named_with_the_way_out(submit, laptop):
    (site,) = (laptop / "venv").glob("lib/python3*/site-packages")
    for name in ("no-such-fig-8", "no-such-nut-8"):
        info = site / f"{name.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "INSTALLER").write_text("pip\n")
    done = submit("run", "--", "python", "show.py")
    assert done.returncode == 1
    assert f"your Python {laptop}/venv/bin/python is not on {socket.gethostname()}" in done.stderr
    assert "-e requirements.txt" in done.stderr
    assert "--image" in done.stderr


def test_a_python_that_the_node_lacks_is_named(submit, laptop, tmp_path):
    """Without a network, uv cannot fetch it."""
    other = tmp_path / "python3.77"
    other.symlink_to(sys.executable)
    (site,) = (laptop / "venv").glob("lib/python3*/site-packages")
    site.parent.rename(site.parent.with_name("python3.77"))
    done = submit("run", "--", "python", "show.py")
    assert done.returncode == 1
    assert "Python 3.77 is not on the node and cannot be downloaded" in done.stderr
    assert "-e requirements.txt" in done.stderr


def test_the_very_same_python_is_used_in_place(allranks, home, code, laptop, tmp_path):
    """The client has a home of its own, and the disk is the server's."""
    allranks("server", "start")
    env = {
        "ALLRANKS_SERVER": json.loads((home / "server.json").read_text())["url"],
        "ALLRANKS_TOKEN": (home / "token").read_text(),
        "ALLRANKS_HOME": str(tmp_path / "other"),
        "VIRTUAL_ENV": str(laptop / "venv"),
    }
    done = allranks("run", "--", "python", "-c", "import sys; print(sys.prefix)", env=env)
    assert done.stdout.splitlines()[-1].endswith(f"{laptop}/venv"), done.stderr
    name = done.stderr.partition(":")[0].split()[-1]
    environment = json.loads(allranks("job", "show", name, "--json").stdout)["environment"]
    (python,) = environment["pythons"]
    assert (python["path"], python["packages"]) == (f"{laptop}/venv/bin/python", None)


def test_an_environment_that_is_gone_is_not_replaced_in_silence(allranks, laptop):
    env = {"VIRTUAL_ENV": str(laptop / "venv")}
    made = allranks("run", "--", "mv", laptop / "venv", laptop / "gone", env=env)
    assert made.returncode == 0, made.stderr
    name = made.stderr.partition(":")[0].split()[-1]
    name = allranks("job", "restart", name).stdout.strip()
    done = allranks("job", "stream", name)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"your Python is not on {socket.gethostname()}" in done.stderr
