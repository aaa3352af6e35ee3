"""What training scripts save is in the record, whatever their repositories' ignore files say."""

import json
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.cli.saving_scripts import AFTER, BEFORE, SCRIPTS
from tests.support import Allranks, commit_all

# Real jobs, about a second each.
pytestmark = pytest.mark.slow

_WORDS = re.compile(r"[\w./+=@-]*[\w/]")


def below(names: Iterable[str], there: set[str]) -> set[str]:
    """The files that these names of files or folders mean."""
    paths = {name.removeprefix("./") for name in names}
    return {path for path in there if any(path == p or path.startswith(f"{p}/") for p in paths)}


def saved(printed: str) -> tuple[set[str], set[str]]:
    """The files that lines with "sav" name and that were there at the end; and all that were."""
    lines, _, end = printed.partition("there:\n")
    there = set(end.splitlines())
    names = [
        word
        for line in lines.splitlines()
        if "sav" in line.lower()
        for word in _WORDS.findall(line)
    ]
    return below(names, there), there


@pytest.mark.parametrize("name", SCRIPTS)
def test_all_that_a_script_says_it_saved_is_in_the_record(
    name: str, shared: Allranks, code: Path
) -> None:
    ignore, script = SCRIPTS[name]
    (code / ".gitignore").write_text("\n".join(ignore.split()))
    (code / "train.py").write_text(BEFORE + script + AFTER)
    commit_all(code)
    job = f"saves-{name}"
    done = shared("run", "-q", "--name", job, "--", "python", "train.py")
    assert done.returncode == 0, done.stderr
    files, there = saved(done.stdout)
    listed = {each["path"] for each in json.loads(shared("job", "files", job, "--json").stdout)}
    kept = {path.removeprefix("work/") for path in listed}
    assert len(files) > 1, "the test finds no paths in what the script prints"
    assert files <= kept, sorted(files - kept)
    # Nothing else is thrown away, either.
    assert there - kept == {".gitignore", "train.py"}
    got = shared("job", "download", job, "-p", "got")
    assert got.returncode == 0, got.stderr
    for path in files:
        work = "" if path.startswith(("outputs/", "logs/")) else "work/"
        assert (code / "got/artifacts" / f"{work}{path}").is_file(), path
