"""Registered components: versions, labels, code, and pipelines that use them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import Allranks, answer

COMPONENT = """\
$schema: https://azuremlschemas.azureedge.net/latest/commandComponent.schema.json
name: say
version: 1
inputs: {text: {type: string}}
outputs: {said: {type: uri_file}}
code: src
additional_includes: [../lib, extra.txt]
command: python say.py "${{inputs.text}}" ${{outputs.said}}
"""
PIPELINE = """\
type: pipeline
jobs:
  first:
    component: azureml:say@good
    inputs: {text: 'one; two'}
  second:
    command: cat ${{inputs.f}}
    inputs: {f: {type: uri_file, path: '${{parent.jobs.first.outputs.said}}'}}
"""


@pytest.fixture
def file(code: Path) -> Path:
    folder = code / "part"
    (folder / "src").mkdir(parents=True)
    (code / "lib").mkdir()
    (code / "lib/words.py").write_text("END = '!'\n")
    (folder / "extra.txt").write_text("extra")
    (folder / "src/say.py").write_text(
        "import sys\nfrom lib.words import END\n"
        "text = sys.argv[1] + END + open('extra.txt').read()\n"
        "print(text)\nopen(sys.argv[2], 'w').write(text)\n"
    )
    (folder / "say.yml").write_text(COMPONENT)
    (code / "pipe.yml").write_text(PIPELINE)
    (code / "say.py").write_text("")
    return folder / "say.yml"


@pytest.mark.slow
def test_components_have_versions_labels_and_code(allranks: Allranks, code: Path, file: Path):
    refused = allranks("job", "create", "-f", code / "pipe.yml")
    assert "pipe.yml:4: jobs.first.component: component say@good not found" in refused.stderr
    made = answer(allranks, "component", "create", "-f", file, "--label", "good")
    assert (made["name"], made["version"], made["created"]) == ("say", "1", True)
    again = allranks("component", "create", "-f", file)
    assert "say:1 already exists" in again.stderr
    # The code of a registered component stays as it was, also without its folder.
    (file.parent / "src/say.py").write_text("raise SystemExit(3)\n")
    assert allranks("gc", "--yes", "--older-than", "0d").returncode == 0
    done = allranks("job", "create", "-f", code / "pipe.yml", "--name", "p", "--stream")
    assert done.returncode == 0, done.stderr
    assert allranks("job", "logs", "p_second").stdout == "one; two!extra\n"
    steps = answer(allranks, "job", "show", "p")["steps"]
    assert steps["first"]["component"] == "say:1"

    changed = allranks("component", "create", "-f", file)
    assert changed.returncode != 0
    assert "already exists with other content" in changed.stderr
    assert answer(allranks, "component", "create", "-f", file, "--version", "2")["created"]
    versions = answer(allranks, "component", "list", "say")
    assert [each["version"] for each in versions] == ["1", "2"]
    assert allranks("component", "label", "say:2", "good").returncode == 0
    failed = allranks("job", "create", "-f", code / "pipe.yml", "--name", "q", "--stream")
    assert failed.returncode == 3
    assert "the step first failed" in failed.stderr
    shown = allranks("component", "show", "say@good").stdout
    assert "text: " in shown or "text:" in shown
    # A pipeline has a copy of its components.
    assert allranks("component", "delete", "--yes", "say:1").returncode == 0
    assert answer(allranks, "job", "show", "p")["steps"]["first"]["component"] == "say:1"
    assert "say:1 not found" in allranks("component", "show", "say:1").stderr


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("name: say\n", ""), "needs a name"),
        (("type: string", "type: strng"), "must be one of"),
        (("${{inputs.text}}", "${{inputs.txt}}"), "`${{inputs.txt}}` is not defined"),
        (("../lib, ", "../nothing, "), "no such file or folder"),
        (("code: src", "code: nothing"), "no such file or folder"),
        (("extra.txt]", "../say.py]"), "has a file 'say.py' already"),
    ],
)
def test_what_is_wrong_is_refused(
    shared: Allranks, file: Path, change: tuple[str, str], message: str
):
    file.write_text(COMPONENT.replace(*change))
    done = shared("component", "create", "-f", file)
    assert (done.returncode != 0, message in done.stderr) == (True, message != ""), done.stderr
    assert "hint: " in done.stderr
    assert "Traceback" not in done.stderr
