"""constraints.txt has a version, and one that may be, of all that allranks and its extras need."""

import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]


def test_each_requirement_has_a_version_that_it_allows() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    words = [*project["dependencies"]]
    words += [word for name in extras.keys() - {"bench", "dev"} for word in extras[name]]
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [Requirement(line) for line in lines if not line.startswith("#")]
    for need in map(Requirement, words):
        versions = [str(pin.specifier)[2:] for pin in pins if pin.name == need.name.lower()]
        assert versions, f"{need.name} is not in constraints.txt"
        assert all(map(need.specifier.contains, versions)), need
