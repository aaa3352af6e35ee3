"""What is read of the logs of a failed job."""

from pathlib import Path

from allranks.core.plan import Recipe
from allranks.server.jobs.explain import read, without_build


def test_of_a_long_log_only_the_end_is_read(tmp_path: Path):
    log = tmp_path / "log"
    assert read(log) == ((), 0)
    log.write_text("one\ntwo\n")
    assert read(log) == (("one", "two", ""), 0)
    log.write_text("12345\r\n" * 40_000)
    lines, skipped = read(log)
    assert 0 < skipped < 40_000 * 7
    assert skipped + len("\r\n".join(lines)) == 40_000 * 7


def test_a_module_whose_package_has_no_build_for_the_node():
    line = "ModuleNotFoundError: No module named '{}'"
    built_in = Recipe(optional=("torchvision",))
    for module in ("torchvision", "torchvision.ops"):
        fix = without_build(built_in, line.format(module))
        assert fix.startswith("the package index has no build of torchvision for the PyTorch")
    assert without_build(built_in, line.format("deepspeed")) == ""
    assert without_build(Recipe(), line.format("torchvision")) == ""
    assert without_build(None, line.format("torchvision")) == ""
