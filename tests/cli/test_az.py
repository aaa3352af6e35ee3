"""Lines of `az ml`, as people's scripts have them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from allranks.cli.az import print_answer, verbs
from allranks.cli.commands import COMMANDS
from allranks.cli.parser import parser_of
from allranks.errors import UsageError
from tests.support import Allranks, environment

JOB = """\
command: echo got ${{inputs.x}} && test ${{inputs.x}} != 9
inputs: {x: 1}
environment: current
experiment_name: shell
"""
# The way of azureml-examples' own `run-job.sh`.
SCRIPT = """\
set -eu
az login >/dev/null
az configure --defaults group=g workspace=w
run_id=$(az ml job create -f job.yml --query name -o tsv --set inputs.x=3 tags.from=script -g rg)
status=$(az ml job show -n $run_id --query status -o tsv)
running=("Queued" "NotStarted" "Starting" "Preparing" "Running" "Finalizing" "Provisioning")
while [[ ${running[*]} =~ $status ]]; do
  sleep 0.1
  status=$(az ml job show -n $run_id --query status -o tsv)
done
[[ $status == Completed ]]
az ml job show -n $run_id --query "{inputs: inputs, tags: tags, page: services.Studio.endpoint}"
"""


@pytest.mark.medium
def test_a_script_of_azures_runs_unchanged(shared: Allranks, shared_home: Path, code: Path) -> None:
    (code / "job.yml").write_text(JOB)
    (code / "az").write_text('#!/bin/sh\nexec "$ALLRANKS_PYTHON" -P -m allranks.cli.main az "$@"\n')
    (code / "az").chmod(0o755)
    env = environment(shared_home)
    env |= {"PATH": f"{code}{os.pathsep}{env['PATH']}", "ALLRANKS_PYTHON": sys.executable}
    done = subprocess.run(
        ["bash", "-c", SCRIPT], cwd=code, env=env, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["inputs"], told["tags"]) == ({"x": 3}, {"from": "script"})
    assert "/ui/jobs/" in told["page"]


@pytest.mark.slow
def test_verbs(allranks: Allranks, code: Path) -> None:
    (code / "job.yml").write_text(JOB)

    def az(*words: str, exits: int = 0) -> str:
        done = allranks("az", *words)
        assert done.returncode == exits, done.stdout + done.stderr
        return done.stdout.strip()

    streamed = az("ml", "job", "create", "-f", "job.yml", "-n", "seen", "--stream", "-o", "none")
    assert streamed.startswith("RunId: seen\nWeb View: http")
    assert "\n\ngot 1\n\nExecution Summary\n" in streamed
    az("ml", "job", "create", "-f", "job.yml", "--set", "inputs.x=9", "--stream", exits=1)
    az("ml", "job", "update", "-n", "seen", "--set", "tags.a=b")
    assert json.loads(az("ml", "job", "show", "-n", "seen"))["tags"] == {"a": "b"}
    rows = az("ml", "job", "list", "--query", "[?name=='seen'].[name, status]", "-o", "tsv")
    assert rows == "seen\tCompleted"
    az("ml", "job", "archive", "--name", "seen")
    assert az("ml", "job", "list", "--archived-only", "--query", "[0].name", "-o", "tsv") == "seen"
    az("ml", "job", "download", "-n", "seen", "--all", "-p", "there")
    assert [*(code / "there").rglob("std_log.txt")]
    made = ("ml", "data", "create", "-n", "d", "-v", "7", "--path", "job.yml", "--type", "uri_file")
    assert az(*made, "--query", "id", "-o", "tsv") == "azureml:d:7"
    assert az("ml", "data", "show", "-n", "d", "-v", "7", "--query", "version") == '"7"'
    assert "allranks-sklearn-1" in az(
        "ml", "environment", "list", "--query", "[].name", "-o", "tsv"
    )
    cluster = ("ml", "compute", "create", "-n", "my-cpus", "--type", "amlcompute", "--size", "s")
    assert az(*cluster, "--query", "provisioning_state", "-o", "tsv") == "Succeeded"
    file = "$schema: x\nname: other-cpus\ntype: amlcompute\nsize: s\nmax_instances: 2\n"
    (code / "compute.yml").write_text(file)
    az("ml", "compute", "create", "-f", "compute.yml")
    assert "other-cpus" in allranks("compute", "map").stdout
    az("ml", "model", "archive", "-n", "m", "-v", "1")  # only jobs are hidden here
    assert len(json.loads(az("ml", "environment", "list", "-r", "2"))) == 2
    assert len(json.loads(az("ml", "job", "list", "--all-results", "true"))) >= 1
    there = ("-f", "job.yml", "--set", "compute=azureml:my-cpus", "--stream", "-o", "none")
    page = az(
        "ml", "job", "create", *there[:-3], "--query", "services.Studio.endpoint", "-o", "tsv"
    )
    assert page.startswith("http")
    before = az("ml", "job", "list", "--query", "length(@)")
    az("ml", "job", "create", "-f", "job.yml", "--query", "nam[", exits=2)
    assert az("ml", "job", "list", "--query", "length(@)") == before
    az("ml", "job", "create", *there)
    assert az("account", "show", "--query", "name", "-o", "tsv") == "allranks"
    assert az("ml", "job", "create", "--help").startswith("az ml job create: allranks job create")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("job create -f a.yml --set a=1 b=2 --set c=3 -w w", "job create -f a.yml --set a=1 --set "
         "b=2 --set c=3"),
        ("job create --file=a.yml --name=n --web", "job create -f a.yml --name n"),
        ("job show -n n --query x", "job show n"),
        ("job list -r 5 --include-archived", "job list --limit 5 --all"),
        ("job download --output-name o -n n -p d", "job download n --output-name o -p d"),
        ("model show -v 2 -n m", "model show m:2"),
        ("environment show -n e -l latest", "environment show e@latest"),
        ("compute create -n c -t slurm --max-instances 4", "compute create c --type slurm "
         "--max-instances 4"),
        ("compute create -f c.yml --set a=1", "compute create -f c.yml --set a=1"),
        ("schedule disable -n s --no-wait", "schedule pause s"),
        ("online-endpoint update -n e --traffic blue=100", "endpoint update e --traffic blue=100"),
        ("online-deployment create -f d.yml --all-traffic -e e -n d", "deployment create -f d.yml "
         "--all-traffic -e e --name d"),
        ("batch-endpoint invoke -n e --inputs a.path=p b=2 --set job_name=j", "endpoint invoke e "
         "--set inputs.a.path=p --set inputs.b=2 --set job_name=j"),
        ("online-endpoint update -n e --set tags.a=b --add tags c=d --remove tags.x",
         "endpoint update e --set tags.a=b --set tags.c=d --set tags.x=null"),
        ("model create -f m.yml --set version=2", "model create -f m.yml --set version=2"),
        ("online-deployment get-logs -n d -e e -l 5", "deployment logs d -e e --tail 5"),
        ("online-deployment show --name d --endpoint=e --resource g", "deployment show d -e e"),
    ],
)  # fmt: skip
def test_lines_become_ours(line: str, words: str) -> None:
    assert " ".join(verbs.read(line.split()).words) == words


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("job shwo -n x", "`az ml job shwo` is not there"),
        ("batch-endpoint regenerate-keys", "is not there"),
        ("", "is not there"),
        ("job show -n", "needs a value"),
        ("job show -n x --querry y", "no '--querry'"),
        ("job show -n x --o json", "no '--o'"),
        ("job show -n x -o xml", "not an output format"),
        ("job create -f a --set --stream", "needs a value"),
        ("data create -n d --path p --tags a=b", "no '--tags'"),
        ("model show -v 2", "needs a name"),
        ("model create -f m --add tags a", "not changed in parts"),
    ],
)
def test_lines_that_have_no_counterpart(line: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        verbs.read(line.split())
    assert caught.value.hint


def test_every_verb_is_a_command_of_ours() -> None:
    for name, verb in verbs.VERBS.items():
        options = {flag for each in parser_of(verb.ours)._actions for flag in each.option_strings}
        assert verb.ours in COMMANDS
        for each in verb.options:
            ours = (each.ours or "").partition(" ")[0]
            assert not ours.startswith("-") or ours in options, f"az ml {name}: {ours}"


@pytest.mark.parametrize(
    ("answer", "output", "query", "printed"),
    [
        ({"a": [1, 2]}, "tsv", "a", "1\n2\n"),
        ({"a": None}, "tsv", "a", ""),
        ({"a": None}, "json", "a", "null\n"),
        ([{"a": 1, "b": {"c": 2}}], "tsv", "", "1\t\n"),
        ({"a": True}, "tsv", "a", "True\n"),
        ({"a": "é"}, "json", "", '{\n  "a": "é"\n}\n'),
        ({"a": {"b": 1}}, "yaml", "", "a:\n  b: 1\n"),
        ([], "table", "", ""),
        ({"a": 1}, "none", "", ""),
    ],
)
def test_outputs(
    answer: object, output: str, query: str, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_answer.print_answer(answer, output, query)
    assert capsys.readouterr().out == printed


@pytest.mark.parametrize("query", ["a[", "]", "a.b.", "foo("])
def test_a_query_that_is_none(query: str) -> None:
    with pytest.raises(UsageError, match="is not a query"):
        print_answer.print_answer({}, "json", query)


NIGHTLY = """\
name: nightly
trigger: {type: recurrence, frequency: week, schedule: {hours: 4, week_days: [monday]}}
create_job: job.yml
"""


@pytest.mark.medium
def test_set_of_assets_and_a_trigger(allranks: Allranks, code: Path) -> None:
    def az(*words: str) -> str:
        done = allranks("az", "ml", *words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    (code / "d.yml").write_text("name: d\npath: .\ntype: uri_folder\n")
    changes = ("--set", "description=1.10", "tags.a=x", "version=7", "--query")
    shown = az("data", "create", "-f", "d.yml", *changes, "[version, description, tags.a]")
    assert json.loads(shown) == ["7", "1.10", "x"]
    (code / "c.yml").write_text("name: c\ncommand: echo hi\n")
    changes = ("--set", "version=3", "inputs.x.type=integer", "--query", "[version, inputs.x.type]")
    assert json.loads(az("component", "create", "-f", "c.yml", *changes)) == ["3", "integer"]
    (code / "job.yml").write_text("command: echo hi\n")
    (code / "s.yml").write_text(NIGHTLY)
    az("schedule", "create", "-f", "s.yml")
    name = json.loads(az("schedule", "trigger", "-n", "nightly"))["last_job"]
    assert allranks("job", "wait", name).returncode == 0


@pytest.mark.medium
def test_keys_without_effect_are_noted(shared: Allranks, code: Path) -> None:
    keys = "identity: {type: aml_token}\nqueue_settings: {priority: high, job_tier: spot}\n"
    (code / "job.yml").write_text(f"command: 'true'\n{keys}")
    created = shared("az", "ml", "job", "create", "-f", "job.yml").stderr
    assert "note: no effect here: identity (ranks run as the user of the compute)" in created
    assert "note: no effect here: queue_settings.priority (the cluster decides" in created
    step = "command: 'true', resources: {max_instance_count: 2}"
    (code / "all.yml").write_text(f"type: pipeline\njobs: {{a: {{{step}}}}}\n")
    created = shared("job", "create", "-f", "all.yml").stderr
    assert "note: no effect here: jobs.a.resources.max_instance_count (the number of" in created
    (code / "d.yml").write_text("name: d\npath: .\nauto_delete_setting: {value: 30d}\n")
    created = shared("data", "create", "-f", "d.yml").stderr
    assert "note: no effect here: auto_delete_setting" in created
