"""Packages in development go along with the code: which files, and where they lie."""

import io
import os
import tarfile
from pathlib import Path

import pytest

from allranks.core.job import code_packages
from allranks.core.job.code_packages import Import
from allranks.snapshot import packages as module
from allranks.snapshot.packages import Package
from allranks.snapshot.take import Snapshot, take_snapshot


def put(root: Path, *paths: str, text: str = "x") -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


@pytest.fixture
def library(tmp_path: Path) -> Path:
    folder = tmp_path / "li'b x"
    put(
        folder,
        "src/lib/__init__.py",
        "src/lib/_c.so",
        "src/lib/_version.py",
        "setup.py",
        "data.bin",
    )
    put(folder, "src/lib/local.py", "src/lib.egg-info/PKG-INFO", "outputs/kept", "build/lib/x.so")
    ignored = ("*.so", "_version.py", "local.py", "*.egg-info", "/build", "*.bin")
    put(folder, ".gitignore", text="\n".join(ignored))
    return folder


@pytest.fixture
def code(tmp_path: Path) -> Path:
    put(tmp_path / "co de", "train.py")
    return tmp_path / "co de"


def imports(taken: Snapshot) -> list[Import]:
    data = b""
    for digest in taken.parts:
        with taken.open(digest) as file:
            data += file.read()
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        content = archive.extractfile(code_packages.LIST)
        assert content is not None
        return code_packages.unpacked(content.read())


def test_a_package_elsewhere_gets_a_folder_with_what_builds_put_there(library, code):
    notes: list[str] = []
    taken = take_snapshot(code, notes.append, packages=[Package("lib", str(library))])
    assert [name.removeprefix(".allranks.packages/") for name in taken.files] == [
        "imports",
        *("lib/.gitignore", "lib/outputs/kept", "lib/setup.py"),
        *("lib/src/lib.egg-info/PKG-INFO", "lib/src/lib/__init__.py", "lib/src/lib/_c.so"),
        "lib/src/lib/_version.py",
        "train.py",
    ]
    assert imports(taken) == [Import(str(library), ".allranks.packages/lib/")]
    assert notes == ["left out of lib: src/lib/local.py (git ignores it)"]
    assert taken.left == ()


def test_a_package_inside_of_the_code_stays_in_its_place(library):
    package = Package("lib", str(library))
    taken = take_snapshot(library, packages=[package])
    assert imports(taken) == [Import(str(library), "")]
    built = {"src/lib/_c.so", "src/lib/_version.py", "src/lib.egg-info/PKG-INFO"}
    assert built <= {*taken.files}
    assert "src/lib/local.py" not in taken.files
    assert imports(take_snapshot(library.parent, packages=[package])) == [
        Import(str(library), "li'b x/")
    ]


def test_a_folder_of_the_code_that_is_not_sent_goes_along(library, code):
    library.rename(code / "lib")
    put(code, ".gitignore", text="/lib\n")
    package = Package("lib", str(code / "lib"))
    assert imports(take_snapshot(code, packages=[package])) == [
        Import(str(code / "lib"), ".allranks.packages/lib/")
    ]
    only_inside = package._replace(only_inside=True)
    assert take_snapshot(code, packages=[only_inside]).files == (".gitignore", "train.py")


def test_a_folder_is_found_by_its_link_and_by_its_real_path(library, code, tmp_path):
    (tmp_path / "link").symlink_to(library)
    found = imports(take_snapshot(code, packages=[Package("lib", f"{tmp_path / 'link'}/")]))
    assert {each.folder for each in found} == {str(tmp_path / "link"), str(library)}


def test_amlignore_of_a_package_counts_for_what_is_built(library, code):
    put(library, ".amlignore", text="*.so\n")
    taken = take_snapshot(code, packages=[Package("lib", str(library))])
    assert not [name for name in taken.files if name.endswith(".so")]


def test_what_cannot_go_along_is_named_once(library, code, monkeypatch):
    monkeypatch.setattr(module, "is_too_large", lambda files, size: files > 5)
    put(code.parent, "small/__init__.py")
    several = [
        Package("lib", str(library)),
        Package("small", str(code.parent / "small")),
        Package("odd", str(library), "it is odd"),
        Package("gone", "/nowhere"),
    ]
    notes: list[str] = []
    taken = take_snapshot(code, notes.append, packages=several)
    assert [place for _, place in imports(taken)] == [".allranks.packages/small/"]
    assert [sentence.rpartition(": ")[2] for sentence in taken.left] == [
        "with the code, it exceeds 500 MB or 20,000 files; --allow-large-code sends it",
        "it is odd",
        "no such file or directory",
    ]
    assert notes[-3:] == [*taken.left]
    assert f"the job imports lib from {library} as it is then" in taken.left[0]
    everything = take_snapshot(code, packages=several, allow_large=True)
    assert len(everything.left) == 2


def test_the_same_packages_have_the_same_name(library, code):
    for folder in (library, code):
        for path in folder.rglob("*"):
            os.utime(path, (1_700_000_000, 1_700_000_000))
    memory = code.parent / "memory.json"
    one, two = (
        take_snapshot(code, cache_file=memory, packages=[Package("lib", str(library))])
        for _ in range(2)
    )
    assert one.digest == two.digest
    assert one.digest != take_snapshot(code, packages=[Package("lib2", str(library))]).digest


def test_where_copies_lie_on_a_node():
    several = [Import("/a", "src/"), Import("/a/b", ".allranks.packages/b/")]
    read = code_packages.unpacked(code_packages.packed(several))
    assert [code_packages.on_node(each, "/w", "/p") for each in read] == [
        Import("/a/b", "/p/b/"),
        Import("/a", "/w/src/"),
    ]


def test_the_order_of_folders_does_not_matter():
    two = [Import("/lib-a", ""), Import("/lib-b", "")]
    assert code_packages.packed(two) == code_packages.packed(reversed(two))


def test_packages_alone(library):
    package = Package("lib", str(library))
    taken = take_snapshot(None, packages=[package, package._replace(only_inside=True)])
    assert imports(taken) == [Import(str(library), ".allranks.packages/lib/")]


def test_packages_of_code_that_was_downloaded_are_not_the_ones_of_this_job(library, code):
    put(code, ".allranks.packages/imports", ".allranks.packages/lib/old.py")
    assert take_snapshot(code).files == ("train.py",)
