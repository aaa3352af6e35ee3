"""No archive writes outside its folder, or makes a link that leads outside."""

import contextlib
import errno
import io
import os
import stat
import tarfile
import tempfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allranks.errors import AllranksError
from tests.archives import entry, extract, hard, link, tar


def test_a_later_entry_replaces_an_earlier_one(tmp_path):
    made = tar(tmp_path / "a.tar", "one", hard("two", "one"), link("three", "one"))
    tar(made, "one", "three", mode="a", data=b"later")
    extract(made, tmp_path / "a")
    assert (tmp_path / "a/one").read_bytes() == (tmp_path / "a/three").read_bytes() == b"later"
    assert (tmp_path / "a/two").read_bytes() == b"x"
    assert not (tmp_path / "a/three").is_symlink()


def test_modes(tmp_path):
    folder = entry("closed", tarfile.DIRTYPE, mode=0o7000)
    made = tar(
        tmp_path / "a.tar", folder, entry("closed/file", mode=0o7040), entry("g", mode=0o2777)
    )
    mask = os.umask(0o027)
    try:
        extract(made, tmp_path / "a")
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(mask)
    modes = {name: stat.S_IMODE((tmp_path / "a" / name).stat().st_mode)
             for name in ("closed", "closed/file", "g")}  # fmt: skip
    assert modes == {"closed": 0o700, "closed/file": 0o640, "g": 0o750}
    assert (tmp_path / "a" / "g").stat().st_uid == os.getuid()


OUTSIDE = "would be written outside its folder"
LEADS = "leads outside its folder"
HOSTILE: dict[str, tuple[list[tarfile.TarInfo | str], str]] = {
    "up": (["../x"], rf"'\.\./x' in b\.tar {OUTSIDE}"),
    "up from below": (["a/../../x"], OUTSIDE),
    "absolute": (["/OUT/x"], OUTSIDE),
    "its folder itself": (["a/.."], "name of the folder itself"),
    "a folder outside": ([entry("../d", tarfile.DIRTYPE)], OUTSIDE),
    "a link outside": ([link("../l", "x")], OUTSIDE),
    "a link to outside": ([link("l", "/OUT")], rf"'l' in b\.tar is a link that {LEADS}: '/.*'"),
    "a link up": ([link("l", "..")], LEADS),
    "a link up from below": ([link("a/l", "../../out")], LEADS),
    "a link by way of a name": ([link("l", "a/../../out")], LEADS),
    "up by way of another link": (
        [link("a/b/c", "../.."), link("l", "a/b/c/../out")],
        LEADS,
    ),
    "an empty link": ([link("l", "")], LEADS),
    "through a link to outside": ([link("l", "../out"), "l/x"], LEADS),
    "through a link": (
        [entry("d", tarfile.DIRTYPE), link("l", "d"), "l/x"],
        "through the link 'l'",
    ),
    "a folder for a link": (
        [entry("d", tarfile.DIRTYPE), link("l", "d"), entry("l", tarfile.DIRTYPE)],
        "through the link",
    ),
    "a hard link up": ([hard("h", "../out/secret"), "h"], f"hard link that {LEADS}"),
    "an absolute hard link": ([hard("h", "/OUT/secret"), "h"], f"hard link that {LEADS}"),
    "a hard link through a link": (
        [entry("d", tarfile.DIRTYPE), "d/f", link("l", "d"), hard("h", "l/f")],
        "through the link",
    ),
    "a hard link to a link": ([link("a/l", ".."), hard("h", "a/l")], LEADS),
    "a hard link to a folder": (
        [entry("d", tarfile.DIRTYPE), hard("h", "d")],
        "does not come before it",
    ),
    "a hard link to nothing": ([hard("h", "f")], "hard link to 'f', which does not come before it"),
    "a pipe": ([entry("p", tarfile.FIFOTYPE)], "'p' in b.tar is neither"),
    "a device": ([entry("p", tarfile.CHRTYPE, devmajor=1, devminor=3)], "neither"),
    "a disk": ([entry("p", tarfile.BLKTYPE, devmajor=8)], "neither"),
    "a file for a folder": ([entry("d", tarfile.DIRTYPE), "d/x", "d"], "cannot replace the folder"),
    "below a file": (["f", "f/x"], "lies below 'f', which is not a folder"),
    "too deep": (["d/" * 1000 + "x"], "too long a path"),
    "a long name": (["n" * 300], "File name too long"),
}


@pytest.mark.parametrize("trick", HOSTILE)
def test_hostile_tars_are_refused(tmp_path, trick):
    entries, sentence = HOSTILE[trick]
    out = tmp_path / "place" / "out"
    out.mkdir(parents=True)
    (out / "secret").write_text("secret")
    for each in entries:
        if isinstance(each, tarfile.TarInfo):
            each.linkname = each.linkname.replace("/OUT", str(out))
    named = [e.replace("/OUT", str(out)) if isinstance(e, str) else e for e in entries]
    made = tar(tmp_path / "b.tar", *named, data=b"evil")
    before = _tree(tmp_path / "place")
    with pytest.raises(AllranksError, match=sentence) as caught:
        extract(made, tmp_path / "place" / "goal")
    assert caught.value.hint
    assert _tree(tmp_path / "place") == before


@pytest.mark.parametrize(
    ("name", "mode", "content", "sentence"),
    [
        ("../x", 0, "", OUTSIDE),
        ("/etc/x", 0, "", OUTSIDE),
        ("l", stat.S_IFLNK, "/etc", LEADS),
        ("l", stat.S_IFLNK, "../x", LEADS),
        ("p", stat.S_IFIFO, "", "neither a file"),
        ("p", stat.S_IFCHR, "", "neither a file"),
    ],
)
def test_hostile_zips_are_refused(tmp_path, name, mode, content, sentence):
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr = 3, (mode | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as file:
        file.writestr(info, content)
    (tmp_path / "in").mkdir()
    with pytest.raises(AllranksError, match=sentence):
        extract(tmp_path / "b.zip", tmp_path / "in" / "goal")
    assert os.listdir(tmp_path / "in" / "goal") == []
    assert os.listdir(tmp_path / "in") == ["goal"]


def _tree(folder: Path) -> dict[str, bytes | None]:
    """Contents of a folder, without `goal`."""
    return {
        str(path): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
        if "goal" not in path.relative_to(folder).parts
    }


NAME = st.lists(
    st.sampled_from(["a", "b", "c", "..", ".", "", "-x", "n\n", "\udcff", "é", "out"]),
    min_size=1,
    max_size=5,
).map("/".join)
ENTRY = st.one_of(
    NAME,
    NAME.map(lambda name: entry(name, tarfile.DIRTYPE, mode=0o755)),
    st.tuples(NAME, NAME).map(lambda both: link(*both)),
    st.tuples(NAME, NAME).map(lambda both: hard(*both)),
)


@pytest.mark.slow
@given(st.lists(ENTRY, max_size=12), st.sampled_from(["w", "w:gz"]))
@settings(max_examples=300)
def test_random_names_never_write_outside(entries, mode):
    with tempfile.TemporaryDirectory() as made:
        place = Path(made, "place")
        (place / "out").mkdir(parents=True)
        (place / "out" / "a").write_text("secret")
        archive = tar(Path(made, "b.tar"), *entries, mode=mode, data=b"evil")
        before = _tree(place)
        with contextlib.suppress(AllranksError):
            extract(archive, place / "goal")
        assert _tree(place) == before
        goal = os.path.realpath(place / "goal")
        for at, folders, files in os.walk(goal):
            for name in (*folders, *files):
                path = os.path.join(at, name)
                try:
                    os.stat(path)
                except OSError as error:
                    if error.errno == errno.ELOOP:
                        continue  # `a` to `a//a`, of which `realpath` says `/a`
                found = os.path.realpath(path)
                assert found == goal or found.startswith(f"{goal}/")


LETTERS = st.characters(exclude_characters="/\0", exclude_categories=("Cs",))
PART = st.text(LETTERS, min_size=1, max_size=40).filter(lambda part: part not in (".", ".."))
HARMLESS = st.lists(PART, min_size=1, max_size=4).map("/".join)


@pytest.mark.slow
@given(st.dictionaries(HARMLESS, st.binary(max_size=2000), max_size=8))
@settings(max_examples=100)
def test_harmless_archives_round_trip(contents):
    names = [
        name for name in contents if not any(other.startswith(f"{name}/") for other in contents)
    ]
    with tempfile.TemporaryDirectory() as made:
        with tarfile.open(Path(made, "b.tar"), "w") as file:
            for name in names:
                info = entry(name)
                info.size = len(contents[name])
                file.addfile(info, io.BytesIO(contents[name]))
        extract(Path(made, "b.tar"), Path(made, "goal"))
        found = {
            os.path.relpath(os.path.join(at, name), Path(made, "goal"))
            for at, _, files in os.walk(Path(made, "goal"))
            for name in files
        }
        assert found == set(names)
        for name in names:
            assert Path(made, "goal", name).read_bytes() == contents[name]
