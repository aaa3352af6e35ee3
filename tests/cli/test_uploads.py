"""A command line on a machine that does not see the server's disk: its data is uploaded."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import CLI, command_line, environment

pytestmark = pytest.mark.slow

# In a mount namespace of its own, where a disk of its own hides a folder that the server has, too.
APART = 'mount -t tmpfs none "$0" && cd "$0" && mkdir data && '
MAKE = "echo 1 > data/a; echo 2 > data/b; ln -s a data/link; "


def can_hide() -> bool:
    argv = ["unshare", "--map-root-user", "--mount", "true"]
    return subprocess.run(argv, capture_output=True).returncode == 0


Far = Callable[[str], "subprocess.CompletedProcess[str]"]


@pytest.fixture
def far(home: Path, tmp_path: Path) -> Far:
    if not can_hide():
        pytest.skip("this user may have no mount namespaces")
    allranks = command_line(home, tmp_path)
    assert allranks("server", "start").returncode == 0
    url = json.loads((home / "server.json").read_text())["url"]
    token = (home / "token").read_text().strip()
    folder = tmp_path / "far"
    (folder / "data").mkdir(parents=True)
    env = environment(home) | {
        "ALLRANKS_SERVER": url,
        "ALLRANKS_TOKEN": token,
        "ALLRANKS_HOME": str(tmp_path / "client"),
    }

    def run(script: str) -> subprocess.CompletedProcess[str]:
        """Run it there; `allranks` is ours."""
        ours = f"allranks() {{ '{sys.executable}' -c '{CLI}' \"$@\"; }}; "
        argv = ["unshare", "--map-root-user", "--mount", "bash", "-ec", ours + APART + script]
        return subprocess.run([*argv, str(folder)], env=env, capture_output=True, text=True)

    return run


def answer(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_an_input_is_uploaded_and_an_output_downloaded(far: Far) -> None:
    script = 'mkdir code; echo \'cat "$1"/* > "$2"/all\' > code/go.sh; '
    command = "bash go.sh '${{inputs.d}}' '${{outputs.o}}'"
    run = f"allranks run -C code -i d=./data -o o=./results -- {command} >&2; cat results/all"
    done = far(MAKE + script + run)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "1\n2\n1\n"
    assert "is uploaded: 2 files" in done.stderr


def test_an_output_of_a_job_that_failed_is_downloaded_too(far: Far) -> None:
    command = "bash -c 'echo half > \"$AZURE_ML_OUTPUT_o\"/part; exit 3'"
    done = far(f"allranks run -o o=./results -- {command} >&2 || echo $?; cat results/part")
    assert done.stdout == "3\nhalf\n", done.stderr


def test_a_restart_with_another_input_uploads_it(far: Far) -> None:
    cat = "bash -c 'cat \"$AZURE_ML_INPUT_d\"/*'"
    script = f"allranks run --name j -i d=./data -- {cat} >&2; mkdir other; echo 3 > other/c; "
    again = "allranks job restart j --set inputs.d.path=$PWD/other --stream"
    done = far(MAKE + script + again)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "3\n"


def test_outputs_of_a_job_file_come_back_or_a_note_says_where_they_are(far: Far) -> None:
    file = "printf 'command: echo 1 > ${{outputs.o}}/x\\noutputs: {o: {path: ./out}}\\n' > j.yml; "
    done = far(file + "allranks job create -f j.yml --stream >&2; cat out/x")
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
    done = far(file + "allranks job create -f j.yml; ls")
    assert done.returncode == 0, done.stderr
    assert "out" not in done.stdout.split()
    assert "the server does not see" in done.stderr
    assert "--output-name o -p DIR" in done.stderr
    program = "from allranks import Client, load_job; jobs = Client().jobs; "
    program += "made = jobs.create_or_update(load_job('j.yml')); jobs.stream(made.name); "
    program += "jobs.download(made.name, 'got', output_name='o')"
    done = far(file + f"'{sys.executable}' -c \"{program}\"; ls; find got -name x -exec cat {{}} +")
    assert done.returncode == 0, done.stderr
    assert "out" not in done.stdout.split()
    assert done.stdout.endswith("1\n")


def test_data_assets_models_and_the_way_back(far: Far) -> None:
    made = answer(far(MAKE + "allranks data create cats --path ./data --json"))
    assert made["path"].startswith("azureml://datastores/default/paths/uploads/")
    again = answer(far(MAKE + "allranks data upload data --name cats --json"))
    assert not again["created"]
    kept = answer(far(MAKE + "allranks data create here --path ./data --no-upload --json"))
    assert kept["path"].endswith("/far/data")
    download = "allranks data download cats -p got >&2; "
    got = far(download + download + "cat got/cats/a got/cats/b; readlink got/cats/link")
    assert got.stdout == "1\n2\na\n", got.stderr
    assert "left out" not in got.stderr
    file = answer(far(MAKE + "allranks data upload data/a --json"))
    assert file["type"] == "uri_file"
    assert far("allranks data download a -p got >&2; cat got/a/a").stdout == "1\n"
    model = answer(far("echo w > model.pt; allranks model create m --path ./model.pt --json"))
    assert model["files"] == 1


def test_a_folder_that_the_server_does_not_see_is_not_run_in(far: Far) -> None:
    done = far("allranks run --in-place -- true")
    assert done.returncode == 2, done.stdout
    assert "does not see this folder as it is here" in done.stderr
    assert "leave --in-place out" in done.stderr
    assert far("cd ..; mkdir -p same; allranks run --in-place -C same -- true").returncode == 0


def test_too_much_is_refused_with_the_flag(far: Far) -> None:
    done = far("truncate -s 3G data/large; allranks data upload data")
    assert done.returncode == 2
    assert "--allow-large-data" in done.stderr
    assert "3.2 GB" in done.stderr
