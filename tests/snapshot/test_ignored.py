"""What is left out of the code: as git says, and by the same rules where git cannot say."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from allranks.snapshot.files import rules_without_git, walk
from allranks.snapshot.ignore import IgnoreRules, excluded_by_user

WHO = ("-c", "user.name=a", "-c", "user.email=a@b")


@pytest.fixture(autouse=True)
def no_settings_of_a_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)


@pytest.fixture
def of_git(tmp_path: Path) -> Path:
    """A repository, whose files git lists."""
    folder = tmp_path / "re'po x"
    put(folder, "a.py")
    in_git(folder, "init", "-q")
    return folder


@pytest.fixture(params=["git", "own rules"])
def repository(of_git: Path, request: pytest.FixtureRequest, monkeypatch) -> Path:
    """A repository, whose files git lists, or whose files we do because git is not there."""
    if request.param == "own rules":
        monkeypatch.setattr("allranks.snapshot.files.files_of_git", lambda folder: [])
    return of_git


def in_git(folder: Path, *words: str) -> bytes:
    return subprocess.run(
        ["git", "-C", folder, *WHO, *words], check=True, capture_output=True
    ).stdout


def put(root: Path, *paths: str, text: str = "x") -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def names(folder: Path, notes: list[str] | None = None) -> set[str]:
    return {file.name for file in walk(folder, [] if notes is None else notes)}


def test_rules_of_the_repository_hold_in_a_folder_of_it(repository):
    put(repository, ".gitignore", text=".env\n*.pem\n/part/only-here\n")
    put(repository, "part/.env", "part/id.pem", "part/only-here", "part/b.py", "part/deep/.env")
    assert names(repository / "part") == {"b.py"}


def test_a_nested_file_counts_and_may_take_back(repository):
    put(repository, ".gitignore", text="*.json\n!config.json\n")
    put(repository, "sub/.gitignore", text="*.csv\n!keep.csv\nconfig.json\n")
    put(repository, "sub/a.csv", "sub/keep.csv", "sub/config.json", "config.json", "b.json")
    expected = {".gitignore", "a.py", "config.json", "sub/.gitignore", "sub/keep.csv"}
    assert names(repository) == expected


def test_the_users_own_excludes_count(of_git, tmp_path):
    put(tmp_path, "user/.config/git/ignore", text="*.swp\n")
    put(of_git, "x.swp", "x.bak")
    assert names(of_git) == {"a.py", "x.bak"}
    put(tmp_path, "user/.gitconfig", text="[core]\n\texcludesFile = ~/elsewhere\n")
    put(tmp_path, "user/elsewhere", text="*.bak\n")
    assert names(of_git) == {"a.py", "x.swp"}


def test_the_excludes_of_the_repository_count(repository):
    put(repository, ".git/info/exclude", text="mine\n")
    put(repository, "mine", "part/mine")
    assert names(repository) == {"a.py"}


def test_amlignore_leaves_out_more(repository):
    put(repository, ".gitignore", text="*.bin\n")
    put(repository, ".amlignore", text="data/\n!b.bin\n")
    put(repository, "b.bin", "data/c", "keep/data/d", "e")
    assert names(repository) == {".amlignore", ".gitignore", "a.py", "e"}


def test_a_folder_that_is_ignored_itself_holds_code(repository):
    put(repository, ".gitignore", text="scratch\n*.log\n")
    put(repository, "scratch/x/train.py", "scratch/x/a.log", "scratch/x/b.tmp")
    put(repository, "scratch/x/.gitignore", text="*.tmp\n")
    assert names(repository / "scratch" / "x") == {".gitignore", "train.py", "a.log"}


def test_a_worktree_takes_its_rules_along_but_not_its_git_file(of_git, tmp_path):
    put(of_git, ".git/info/exclude", text="*.tmp\n")
    in_git(of_git, "add", ".")
    in_git(of_git, "commit", "-qm", "first")
    in_git(of_git, "worktree", "add", "-q", str(tmp_path / "tree"))
    put(tmp_path / "tree", "b.tmp", "c.py")
    assert names(tmp_path / "tree") == {"a.py", "c.py"}


def test_repositories_inside_come_along_by_their_own_rules(repository, tmp_path):
    put(tmp_path / "library", "lib.py", "junk.o")
    put(tmp_path / "library", ".gitignore", text="*.o\n")
    in_git(tmp_path / "library", "init", "-q")
    in_git(tmp_path / "library", "add", ".")
    in_git(tmp_path / "library", "commit", "-qm", "first")
    allowed = ("-c", "protocol.file.allow=always")
    in_git(repository, *allowed, "submodule", "--quiet", "add", str(tmp_path / "library"), "sub")
    in_git(repository, "clone", "-q", str(tmp_path / "library"), "clone")
    put(repository, "sub/new.py", "sub/more.o", "clone/x.o")
    assert names(repository) == {
        *(".gitmodules", "a.py", "clone/.gitignore", "clone/lib.py"),
        *("sub/.gitignore", "sub/lib.py", "sub/new.py"),
    }


def test_environments_caches_and_homes_stay_out(repository):
    put(repository, "venv/pyvenv.cfg", "venv/lib/x.py", "venv/inner/pyvenv.cfg")
    put(repository, "pkg/__pycache__/a.pyc", "home/token", "home/server.lock", "home/jobs/x")
    notes: list[str] = []
    assert names(repository, notes) == {"a.py"}
    assert sorted(note.partition(" (")[0] for note in notes) == [
        "left out of the code: home/",
        "left out of the code: venv/",
    ]


def test_what_git_tracks_is_code_even_if_a_rule_is_about_it(tmp_path):
    put(tmp_path, "kept.bin", "logs/.gitkeep", "logs/run.txt", "outputs/x", "gone.py")
    put(tmp_path, ".gitignore", text="*.bin\n")
    in_git(tmp_path, "init", "-q")
    in_git(tmp_path, "add", "-f", "kept.bin", "logs/.gitkeep", ".gitignore", "gone.py")
    put(tmp_path, "other.bin")
    (tmp_path / "gone.py").unlink()
    notes: list[str] = []
    assert names(tmp_path, notes) == {".gitignore", "kept.bin", "logs/.gitkeep"}
    assert [note.partition(" (")[0] for note in notes] == ["left out of the code: outputs/"]


def test_a_package_called_logs_is_code(repository):
    put(repository, "logs/__init__.py", "logs/logger.py", "outputs/result")
    assert names(repository) == {"a.py", "logs/__init__.py", "logs/logger.py"}


def test_a_checkout_is_sent_whole(tmp_path):
    put(tmp_path, "a.bin", "logs/x", ".gitignore", text="*.bin\n")
    files = walk(tmp_path, [], is_commit=True)
    assert [file.name for file in files] == [".gitignore", "a.bin", "logs/x"]


def test_outside_of_git_nested_files_count(tmp_path):
    put(tmp_path, ".gitignore", text="*.json\n")
    put(tmp_path, "code/sub/.gitignore", text="*.csv\n")
    put(tmp_path, "code/a.json", "code/sub/b.csv", "code/c.csv")
    assert names(tmp_path / "code") == {"a.json", "c.csv", "sub/.gitignore"}


@pytest.mark.parametrize("damage", ["unreadable", "of another user"])
def test_a_repository_that_git_refuses(tmp_path, monkeypatch, damage):
    put(tmp_path, ".gitignore", text="*.pem\n")
    put(tmp_path, "part/id.pem", "part/a.py")
    in_git(tmp_path, "init", "-q")
    if damage == "unreadable":
        put(tmp_path, ".git/HEAD", text="nonsense")
    else:
        monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    assert names(tmp_path / "part") == {"a.py"}


def test_without_git(tmp_path, monkeypatch):
    put(tmp_path, ".gitignore", text="*.pem\n")
    put(tmp_path, "part/id.pem", "part/a.py")
    in_git(tmp_path, "init", "-q")
    monkeypatch.setenv("PATH", "/nowhere")
    assert names(tmp_path / "part") == {"a.py"}


def test_in_a_hook_of_another_repository(tmp_path, monkeypatch):
    for folder in ("one", "two"):
        put(tmp_path, f"{folder}/{folder}.py")
        in_git(tmp_path / folder, "init", "-q")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "one" / ".git"))
    assert names(tmp_path / "two") == {"two.py"}


def test_the_rules_of_a_folder_without_git(tmp_path):
    put(tmp_path, ".gitignore", text="*.pt\n")
    put(tmp_path, ".amlignore", text="/big\n")
    put(tmp_path, "sub/.gitignore", text="!keep.pt\n")
    by_git, by_user = IgnoreRules(tmp_path), excluded_by_user(tmp_path)
    paths = ("a.pt", "sub/keep.pt", "sub/a.pt", "big/x", "sub/big")
    assert [path for path in paths if by_git(path)] == ["a.pt", "sub/a.pt"]
    assert [path for path in paths if by_user(path)] == ["big/x"]


def test_a_star_stands_for_what_is_in_a_folder_and_not_for_the_folder(tmp_path):
    put(tmp_path, ".gitignore", text="data/*\n!data/keep/\ndata/keep/*\n!data/keep/vocab.txt\n")
    ignored = IgnoreRules(tmp_path)
    paths = ("data/", "data/x", "data/keep/", "data/keep/x", "data/keep/vocab.txt")
    assert [path for path in paths if ignored(path)] == ["data/x", "data/keep/x"]


# ------------------------------------------- any rules without named classes: as git reads them

NAMES = st.sampled_from(
    ["a", "b", "ab", "foo", "foo.txt", "x.py", "a b", "[a]", "#h", "!n", "t ", "ü", "c-d", "z\\y"]
)
_PLAIN = ("a", "b", "foo", ".txt", "ü", "-", "!", "#", " ", "\r", "/")
_STARS = ("*", "**", "***", "?", "**/", "/**", "/**/")
_SETS = ("[ab]", "[!a]", "[a-c]", "[]a]", "[^]]", "[a-]", "[\\]]", "[z-a]", "[", "]")
_ODD = ("\\#", "\\!", "\\ ", "\\")
ATOMS = st.sampled_from([*_PLAIN, *_STARS, *_SETS, *_ODD])
LINES = st.tuples(
    st.sampled_from(["", "", "", "!"]),
    st.sampled_from(["", "", "/"]),
    st.lists(ATOMS, min_size=1, max_size=4).map("".join),
    st.sampled_from(["", "", "/", "/*"]),
).map("".join)
# Not ours: slashes in sets or behind a backslash; and git takes stars behind a plain beginning for
# those of a whole name, against its documentation.
LINES = LINES.filter(lambda line: not re.search(r"[^/!]\*\*|\\/|\[.*/", line))
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)
RULES = st.lists(LINES, min_size=1, max_size=5).map("\n".join)


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Fresh folders of one repository: to make one for each takes long."""
    root = tmp_path_factory.mktemp("rules")
    in_git(root, "init", "-q")
    return (root / str(number) for number in range(1_000_000))


@pytest.mark.slow
@settings(max_examples=300)
@given(st.lists(PATHS, min_size=1, max_size=12), RULES, st.none() | st.tuples(PATHS, RULES))
@example(["a/b"], "/**\n!a", None)
def test_our_rules_are_those_of_git(numbered, paths, rules, nested):
    root = next(numbered)
    _fill(root, paths)
    (root / ".gitignore").write_text(rules)
    if nested is not None and (root / nested[0]).is_dir():
        (root / nested[0] / ".gitignore").write_text(nested[1])
    listed = in_git(root, "ls-files", "-z", "--others", "--exclude-standard").split(b"\0")
    files = [str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()]
    ignored, in_repository = IgnoreRules(root), rules_without_git(root)
    kept = [name for name in files if not ignored(name)]
    assert sorted(map(os.fsencode, kept)) == sorted(filter(None, listed))
    assert kept == [name for name in files if not in_repository(name)]


def _fill(root: Path, paths: list[str]) -> None:
    root.mkdir()
    for path in sorted(paths, key=len, reverse=True):
        if not (root / path).exists():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text("")
