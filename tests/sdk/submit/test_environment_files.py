"""Environments in files, read where the job is submitted."""

import hashlib
from pathlib import Path
from urllib.parse import quote

import pytest

from allranks.errors import AllranksError, NotFound, SpecError
from allranks.sdk.submit.environment_files import from_file, inlined


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "my fi'les"
    path.mkdir()
    return path


def test_requirements_with_all_that_they_name(folder):
    (folder / "more").mkdir()
    (folder / "requirements.txt").write_text(
        "# what we need\nnumpy >= 1  # fast\n\n-r more/base.txt\n--constraint=limits.txt\n"
        "torch==2.1.0 \\\n    --hash=sha256:00 \\\n    --hash=sha256:11\n"
        "-f wheels\n--find-links https://x/wheels\n./own-1.0-py3-none-any.whl\n"
        "a @ https://x/a.whl#egg=a\n--index-url https://x/simple\n# no more \\\n"
        "pear==1 --no-binary pear\n"
    )
    (folder / "own-1.0-py3-none-any.whl").write_bytes(b"wheel")
    (folder / "more" / "base.txt").write_text("six\n-r ../last.txt\n--find-links=own\n")
    (folder / "last.txt").write_text("\ufefflast\n")
    (folder / "limits.txt").write_text("six<2\n")
    assert from_file(folder / "requirements.txt") == {
        "pip": [
            "numpy >= 1",
            "six",
            "last",
            f"--find-links {folder}/more/own",
            "torch==2.1.0 --hash=sha256:00 --hash=sha256:11",
            f"--find-links {folder}/wheels",
            "--find-links https://x/wheels",
            f"own @ file://{quote(str(folder))}/own-1.0-py3-none-any.whl#sha256="
            + hashlib.sha256(b"wheel").hexdigest(),
            "a @ https://x/a.whl#egg=a",
            "--index-url https://x/simple",
            "--no-binary pear",
            "pear==1",
        ],
        "constraints": ["six<2"],
    }


@pytest.mark.parametrize("line", ["./my pkg", "-e ./my pkg", "--editable=./my pkg"])
def test_a_folder_of_source_is_refused_by_its_line(folder, line):
    file = folder / "requirements.txt"
    file.write_text(f"six\n{line}\n")
    with pytest.raises(SpecError) as caught:
        from_file(file)
    problem = caught.value.problems[0]
    assert (caught.value.file, problem.line) == (str(file), 2)
    assert "my pkg" in problem.message
    assert "is a folder of source" in problem.message
    assert "pip wheel --no-deps" in str(problem.hint)


def test_a_conda_file_is_known_by_its_dependencies(folder):
    file = folder / "conda.yml"
    file.write_text("name: x\ndependencies:\n  - python=3.10\n  - pip:\n    - six\n")
    data = {"name": "x", "dependencies": ["python=3.10", {"pip": ["six"]}]}
    assert from_file(file) == {"conda_file": data}


def test_azures_own_file(folder):
    (folder / "conda.yml").write_text("dependencies: [numpy]\n")
    file = folder / "env.yml"
    file.write_text(
        "$schema: https://x\nname: e\nversion: 1.10\npython: 3.10\nconda_file: ./conda.yml\n"
    )
    assert from_file(file) == {
        "name": "e",
        "version": "1.10",
        "python": "3.10",
        "conda_file": {"dependencies": ["numpy"]},
    }


def test_paths_begin_where_they_are_written(folder):
    (folder / "r.txt").write_text("six\n")
    found = inlined({"requirements": "r.txt", "pip": ["-f w", "numpy"]}, folder)
    assert found == {"pip": [f"--find-links {folder}/w", "numpy", "six"]}


def test_what_is_wrong_is_told_with_its_line(folder):
    file = folder / "conda.yml"
    file.write_text("name: x\ndependencies:\n  - gcc\n  - numpy\n  - a=1|2\n")
    with pytest.raises(SpecError) as caught:
        from_file(file)
    assert caught.value.file == str(file)
    assert [each.line for each in caught.value.problems] == [3, 5]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("none.txt", None, "requirements file not found"),
        ("none.yml", None, "file not found"),
        ("loop.txt", "-r loop.txt", "includes itself"),
        ("lost.txt", "-r nowhere.txt", "requirements file not found"),
        ("lost-wheel.txt", "./nowhere.whl", "cannot be read"),
        ("far.txt", "-r https://me:pw@x/r.txt", "not downloaded"),
        ("nul.txt", "-r a\0b", "cannot be read"),
        ("bytes.txt", "\udc80", "not UTF-8"),
        ("tabs.yml", "dependencies:\n\t- a", "unexpected character"),
        ("list.yml", "- a", "a mapping"),
    ],
)
def test_bad_files(folder, name, text, said):
    if text is not None:
        (folder / name).write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(AllranksError, match=said) as caught:
        from_file(folder / name)
    assert caught.value.hint
    assert isinstance(caught.value, NotFound) == (text is None or "nowhere" in text)
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_files_that_windows_wrote(folder, encoding, end):
    (folder / "r.txt").write_bytes(f"numpy>=1{end}six # ü{end}".encode(encoding))
    assert from_file(folder / "r.txt") == {"pip": ["numpy>=1", "six"]}


def test_what_is_no_requirement_is_told_with_its_line(folder):
    (folder / "r.txt").write_text("-r more.txt\n")
    (folder / "more.txt").write_text("# these\nnumpy\n\nsix>==1\n")
    with pytest.raises(SpecError, match="is not a requirement") as caught:
        from_file(folder / "r.txt")
    assert str(caught.value).startswith(f"{folder}/more.txt:4: 'six>==1'")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--extra-index https://me:pw@x/simple", "'--extra-index' is no option"),
        ("-z", "'-z' is no option"),
        ("--no-deps", "'--no-deps' is no option"),
        ("--find-links", "'--find-links' needs a value"),
        ("six==1 --hashh=sha256:0", "'--hashh' cannot be beside"),
    ],
)
def test_a_wrong_option_is_named_with_its_file_and_line(folder, line, said):
    (folder / "r.txt").write_text(f"numpy\n{line}\n")
    with pytest.raises(SpecError, match=said) as caught:
        from_file(folder / "r.txt")
    assert str(caught.value).startswith(f"{folder}/r.txt:2: ")
    assert caught.value.hint
    assert "pw" not in f"{caught.value} {caught.value.hint}"


def test_the_options_that_pip_takes(folder):
    lines = (
        *("-i https://x/simple", "--extra-index-url=https://y", "-fhttps://z/w", "--no-index"),
        *("--pre", "--no-binary :all:", "--require-hashes", "six==1 --hash=sha256:0"),
        *("https://x/a-b -c.whl", "six ; python_version>'3' --hash=sha256:0 --hash=sha256:1"),
    )
    (folder / "r.txt").write_text("\n".join(lines))
    taken = ["-f https://z/w" if line.startswith("-f") else line for line in lines]
    assert from_file(folder / "r.txt") == {"pip": taken}


def test_a_loop_by_another_way_and_names_that_are_nobodys(folder):
    (folder / "sub").mkdir()
    (folder / "sub" / "l.txt").write_text("-r ../sub/l.txt\n")
    with pytest.raises(AllranksError, match="includes itself"):
        from_file(folder / "sub" / "l.txt")
    with pytest.raises(NotFound):
        from_file(Path("~nosuchuser/r.txt"))
    assert inlined({"constraints": 5, "pip": "x"}, folder) == {"constraints": 5, "pip": "x"}


def test_pip_sections_of_a_conda_file_are_requirements_files(folder):
    (folder / "more.txt").write_text("six\n-c limits.txt\n")
    (folder / "limits.txt").write_text("six<2\n")
    file = folder / "conda.yml"
    file.write_text("dependencies:\n  - pip:\n    - -r more.txt\n    - --find-links ./w\n")
    assert from_file(file) == {
        "conda_file": {"dependencies": [{"pip": ["six", f"--find-links {folder}/w"]}]},
        "constraints": ["six<2"],
    }
