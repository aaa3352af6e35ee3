"""What a plan refuses before anything starts."""

import subprocess

import pytest

from allranks.core.job.compile import CompileContext, compile
from allranks.errors import SpecError
from allranks.spec.job import parse


def compiled(command="true", inputs=None, **variables):
    context = CompileContext("a", "/home/jobs/a", ("agent",), "e", {"PATH": "/bin"})
    spec = {"name": "a", "command": command, "environment_variables": variables}
    spec["inputs"] = inputs or {}
    return compile(parse(spec), context)


def test_words_that_linux_does_not_take_are_refused_with_a_hint():
    with pytest.raises(OSError, match="too long"):
        subprocess.run(["/bin/true", "x" * (128 << 10)])
    for given, where in (
        ({"command": "echo " + "é" * 65_530}, "command"),
        ({"X": "x" * 131_072}, "environment_variables.X"),
        ({"inputs": {"x": "x" * 131_072}}, "inputs.x"),
    ):
        with pytest.raises(SpecError) as caught:
            compiled(**given)
        (problem,) = caught.value.problems
        assert problem.where == where
        assert "bytes, and Linux takes 130,072" in problem.message
        assert "in the code folder" in problem.hint
    assert compiled("echo " + "x" * 130_000, X="x" * 130_000).task.procs == 1
