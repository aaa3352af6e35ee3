"""Packages in development: which there are, and that jobs run what they were at submission."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from allranks.sdk.submit.current_environment import current
from allranks.sdk.submit.editable_packages import live_packages
from allranks.snapshot.packages import Package
from tests.support import Allranks

FINDER = """
import sys
from importlib.machinery import PathFinder
from pathlib import Path
MAPPING = {mapping!r}
NAMESPACES = {{}}
class Finder:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name in MAPPING:
            return PathFinder.find_spec(name, [str(Path(MAPPING[name]).parent)])
def install():
    sys.meta_path.append(Finder)
"""


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A virtual environment, activated; its folder of packages."""
    prefix = tmp_path / "en v"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", prefix], check=True)
    monkeypatch.setenv("VIRTUAL_ENV", str(prefix))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    (site,) = prefix.glob("lib/*/site-packages")
    return site


def editable(site: Path, name: str, folder: Path, files: Mapping[str, str]) -> None:
    """Install a package in development, as pip does."""
    info = site / f"{name}-1.0.dist-info"
    info.mkdir()
    origin = {"dir_info": {"editable": True}, "url": folder.as_uri()}
    (info / "direct_url.json").write_text(json.dumps(origin))
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))
    for file, text in files.items():
        (site / file).write_text(text)


def by_path(site: Path, name: str, folder: Path, within: str = "") -> None:
    editable(site, name, folder, {f"_{name}.pth": f"{folder / within}\n"})


def by_finder(site: Path, name: str, folder: Path) -> None:
    finder = f"__editable___{name}_finder"
    files = {f"{finder}.py": FINDER.format(mapping={name: str(folder / name)})}
    files[f"__editable__.{name}.pth"] = f"import {finder}; {finder}.install()"
    editable(site, name, folder, files)


@pytest.mark.medium
def test_which_packages_are_in_development(python, tmp_path):
    by_path(python, "one", tmp_path / "o ne")
    by_finder(python, "two", tmp_path / "two")
    by_path(python, "allranks", tmp_path / "ours")
    editable(python, "odd", tmp_path / "odd", {"_odd.pth": "import _odd_loader\n"})
    (python / "old.egg-link").write_text(f"{tmp_path / 'old'}\n.")
    (python / "plain-1.0.dist-info").mkdir()
    (python / "broken-1.0.dist-info").mkdir()
    (python / "broken-1.0.dist-info" / "direct_url.json").write_text("{")
    found = live_packages(current())
    problem = "its editable install finds its modules by a program of its own"
    assert found == [
        Package("odd", str(tmp_path / "odd"), problem),
        Package("old", str(tmp_path / "old")),
        Package("one", str(tmp_path / "o ne")),
        Package("two", str(tmp_path / "two")),
    ]


@pytest.mark.medium
@pytest.mark.parametrize("sees_system", ["true", "false"])
def test_an_environment_that_sees_the_packages_of_another(python, tmp_path, sees_system):
    base = tmp_path / "base" / "bin"
    base.mkdir(parents=True)
    (base / "python3.9").touch()
    (base / "python3").symlink_to("python3.9")
    for top in (tmp_path / "base" / "lib", tmp_path / "home" / ".local" / "lib"):
        (top / "python3.9" / "site-packages").mkdir(parents=True)
        by_path(top / "python3.9" / "site-packages", top.parent.name.strip("."), top)
    settings = f"home = {base}\ninclude-system-site-packages = {sees_system}\n"
    (python.parents[2] / "pyvenv.cfg").write_text(settings)
    found = live_packages({**current(), "HOME": str(tmp_path / "home")})
    assert [each.name for each in found] == (["local", "base"] if sees_system == "true" else [])


@pytest.mark.parametrize("versions", ["versions", "installs/python"])
def test_shims_lead_to_all_that_they_choose_from(tmp_path, versions):
    for version in ("3.8", "3.9"):
        top = tmp_path / versions / version
        for folder in ("bin", f"lib/python{version}/site-packages"):
            (top / folder).mkdir(parents=True)
        (top / "bin" / f"python{version}").touch()
        (top / "bin" / "python").symlink_to(f"python{version}")
        for name, folder in (("same", tmp_path / "same"), ("own", tmp_path / version)):
            by_path(top / f"lib/python{version}/site-packages", name, folder)
    found = live_packages({"PATH": f"{tmp_path}/shims:/usr/bin", "HOME": "/nowhere"})
    assert {(each.name, Path(each.folder).name) for each in found} == {
        ("same", "same"),
        ("own", "3.8"),
        ("own-2", "3.9"),
    }


def test_folders_of_pythonpath(tmp_path, monkeypatch):
    path = f"{tmp_path}:relative:/nowhere:"
    found = live_packages({"PYTHONPATH": path, "PATH": "/nowhere"})
    assert found == [Package("the code", str(tmp_path), only_inside=True)]


@pytest.mark.medium
def test_a_package_goes_along_also_if_its_folder_is_in_pythonpath(python, tmp_path, monkeypatch):
    by_path(python, "one", tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert live_packages(current()) == [Package("one", str(tmp_path))]


@pytest.mark.slow
@pytest.mark.end_to_end
def test_edits_do_not_reach_a_job(allranks: Allranks, python, code, tmp_path):
    by_path(python, "inside", code, "src")
    by_path(python, "beside", tmp_path / "be'side")
    by_finder(python, "mapped", tmp_path / "mapped")
    sources = {
        "inside": code / "src" / "inside.py",
        "beside": tmp_path / "be'side" / "beside.py",
        "mapped": tmp_path / "mapped" / "mapped" / "__init__.py",
        "on_path": code / "more" / "on_path.py",
    }
    for source in sources.values():
        source.parent.mkdir(parents=True)
        source.write_text("V = 'at submit'\n")
    env = {"PYTHONPATH": str(code / "more"), "VIRTUAL_ENV": str(python.parents[2])}
    script = [
        f"import {', '.join(sources)}, os, pathlib",
        f"for module in ({', '.join(sources)}): print(module.__name__, module.V)",
        "print(*sorted(os.listdir()))",
        f"pathlib.Path({str(sources['inside'])!r}).write_text('broken(')",
    ]
    (code / "train.py").write_text("\n".join(script))
    expected = [*(f"{name} at submit" for name in sources), "logs more outputs src train.py"]
    first = allranks("run", "-q", "--name", "first", "--", "python", "train.py", env=env)
    assert first.stdout.splitlines() == expected, first.stderr
    for name in ("beside", "mapped"):
        sources[name].write_text("broken(")
    again = allranks("job", "restart", "first", "--stream", "-q")
    assert again.stdout.splitlines() == expected, again.stderr
    # What the command installs goes into a layer in front of the environment.
    sources["inside"].write_text("V = 'at submit'\n")
    sources["beside"].write_text("V = 'newer'\n")
    sources["mapped"].write_text("V = 'at submit'\n")
    line = "pip install --help > /dev/null 2>&1; python train.py"
    layered = allranks("run", "-q", "--", "bash", "-c", line, env=env)
    assert "beside newer" in layered.stdout, layered.stderr
    sources["inside"].write_text("V = 'at submit'\n")
    warm = allranks("run", "-q", "--warm", "json", "--", "python", "train.py", env=env)
    assert warm.stdout == layered.stdout, warm.stderr
