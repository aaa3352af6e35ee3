"""The generated reference: complete, described, and its links resolve."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from pydantic import BaseModel

import allranks
from allranks.cli.commands import COMMANDS
from allranks.core.diagnosis.causes import TABLE
from allranks.settings import Clocks
from allranks.spec import environment_variables as variables
from allranks.spec.descriptions import FIELDS
from allranks.spec.fields.base import Part
from allranks.spec.job import MODELS
from allranks.statuses import JobStatus, Reason

_ROOT = Path(__file__).parents[2]
_SOURCE = _ROOT / "src" / "allranks"
# Not written by people: what the server tells of a model, and Azure's compute, which cannot be
# made here.
_UNLISTED = {
    "BatchEndpointRecord",
    "ModelBatchDeployment",
    "DefaultScaleSettings",
    "EndpointRecord",
    "NamedModel",
    "ModelVersion",
    "AmlCompute",
    "Command",
    "CommandWithComponent",
}


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", _ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(_ROOT / "docs"))  # as where it is run from
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(_ROOT / "docs"))
    return module


@pytest.fixture(scope="module")
def pages(generate: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    out = tmp_path_factory.mktemp("reference")
    return {path.name: path.read_text() for path in generate.write(out)}


def _headings(page: str, level: int = 2) -> list[str]:
    return re.findall(rf"^{'#' * level} (.*)$", page, re.MULTILINE)


def _parts(base: type[BaseModel] = Part) -> Iterator[type[BaseModel]]:
    """The models of allranks: tests that ran before may have made some of their own."""
    for each in base.__subclasses__():
        if each.__module__.startswith("allranks."):
            yield each
        yield from _parts(each)


def test_every_command_public_name_and_cause_has_an_entry(pages: dict[str, str]) -> None:
    assert _headings(pages["cli.md"]) == [f"allranks {name}" for name in COMMANDS]
    names = [name for name in allranks.__all__ if name != "__version__"]
    assert _headings(pages["python.md"]) == names
    assert all(f"| `{each}` |" in pages["failures.md"] for each in (*TABLE, *Reason))
    assert all(f"- `{each}`" in pages["failures.md"] for each in JobStatus)


def test_every_public_name_has_a_docstring(pages: dict[str, str]) -> None:
    entries = re.split(r"^## ", pages["python.md"], flags=re.MULTILINE)[1:]
    assert [each.split("\n")[0] for each in entries if not each.split("```")[2].strip()] == []
    assert " at 0x" not in pages["python.md"]  # a default or type that no reader can use


def test_descriptions_cover_exactly_the_fields_of_all_models(pages: dict[str, str]) -> None:
    own: dict[str, set[str]] = {}
    inherited: dict[str, set[str]] = {}
    for each in _parts():
        fields = {name for name in each.model_fields if name in each.__annotations__}
        own[each.__name__] = own.get(each.__name__, set()) | fields
        inherited[each.__name__] = inherited.get(each.__name__, set()) | {*each.model_fields}
    described = {name: set(texts) for name, texts in FIELDS.items()}
    assert {name: fields - described.get(name, set()) for name, fields in own.items()} == {
        name: set() for name in own
    }
    assert {name: fields - inherited[name] for name, fields in described.items()} == {
        name: set() for name in described
    }
    assert [(k, f) for k, texts in FIELDS.items() for f, text in texts.items() if not text] == []


def test_every_key_of_a_file_is_listed_with_its_description(
    generate: ModuleType, pages: dict[str, str]
) -> None:
    kinds = {**generate.JOB, **{f"sweep.{k}": v for k, v in generate.SWEEP.items()}}
    kinds |= {f"pipeline.{k}": v for k, v in generate.PIPELINE.items()}
    kinds |= {f"component.{k}": v for k, v in generate.COMPONENT.items()}
    kinds |= {f"schedule.{k}": v for k, v in generate.SCHEDULE.items()}
    kinds |= {f"endpoint.{k}": v for k, v in generate.ENDPOINT.items()}
    kinds |= {f"deployment.{k}": v for k, v in generate.DEPLOYMENT.items()}
    kinds |= {f"batch_endpoint.{k}": v for k, v in generate.BATCH_ENDPOINT.items()}
    kinds |= {f"batch_deployment.{k}": v for k, v in generate.BATCH_DEPLOYMENT.items()}
    listed = {each for models in kinds.values() for each in models}
    listed |= set(generate.ASSETS.values())
    assert {each.__name__ for each in _parts() if each.model_fields} - _UNLISTED - {
        "_PerNode",
        "_Policy",
        "JobKeys",
        "RankKeys",
        "CommandKeys",
        "BatchKeys",
        "ModelKeys",
        "Component",
        "_Trigger",
        "ParallelKeys",
    } == {each.__name__ for each in listed}
    assert generate.JOB.keys() - {"distribution"} == MODELS.keys()
    text = pages["job-file.md"] + pages["sweep-file.md"] + pages["assets.md"]
    text += pages["pipeline-file.md"] + pages["component-file.md"] + pages["schedule-file.md"]
    text += pages["endpoint-file.md"]
    for model in listed:
        for name, field in model.model_fields.items():
            row = rf"^\| `{re.escape(field.alias or name)}` \| [^|]+ \| [^|]* \| (.*) \|$"
            said = generate.sentence(generate.describe(model, name))
            assert said in re.findall(row, text, re.MULTILINE)


def test_every_variable_of_ours_is_in_the_table() -> None:
    table = _SOURCE / "spec" / "environment_variables.py"
    code = [path.read_text() for path in _SOURCE.rglob("*.*") if path.suffix in (".py", ".sh")]
    used = set(re.findall(r"ALLRANKS_[A-Z_]+", "".join(code).replace(table.read_text(), "")))
    used |= variables.CLOCKS.keys()  # their names are made of those of the clocks
    named = variables.USER.keys() | variables.CLOCKS.keys() | variables.INTERNAL
    for names in variables.RANK.values():
        named |= {name for name in names if name.startswith("ALLRANKS_")}
    assert named == used
    assert [name.removeprefix("ALLRANKS_").lower() for name in variables.CLOCKS] == list(
        Clocks._fields
    )
    assert not variables.USER.keys() & variables.INTERNAL


def test_every_variable_that_a_rank_gets_is_in_the_table(pages: dict[str, str]) -> None:
    """As written in the modules that make them: keys of dictionaries, and names of networks."""
    found = {
        name
        for file in ("core/distributions/rank_variables.py", "core/distributions/sagemaker.py")
        for name in re.findall(r'"([A-Z][A-Z0-9_]\w*)":', (_SOURCE / file).read_text())
    }
    interfaces = (_SOURCE / "agent/network/interfaces.py").read_text()
    found |= set(re.findall(r'Variable\("([A-Z]\w+)"', interfaces))
    assert {"RANK", "TF_CONFIG", "SM_HOSTS", "NCCL_SOCKET_IFNAME"} <= found
    assert {name for name in found if f"| `{name}` |" not in pages["variables.md"]} == set()


def test_every_row_of_a_table_has_a_description(pages: dict[str, str]) -> None:
    rows = [line for page in pages.values() for line in page.splitlines() if line.startswith("| `")]
    assert len(rows) > len(COMMANDS)
    assert [row for row in rows if re.search(r"\|\s*\.?\s*\|$", row)] == []


def test_two_runs_write_the_same(
    generate: ModuleType, pages: dict[str, str], tmp_path: Path
) -> None:
    assert {path.name: path.read_text() for path in generate.write(tmp_path)} == pages


def test_links_resolve(pages: dict[str, str]) -> None:
    for text in pages.values():
        for file, at in re.findall(r"\]\(([^)#\s]+)(?:#([^)]+))?\)", text):
            if file.startswith("https://"):
                continue
            assert file in pages
            headings = [each for level in (1, 2, 3) for each in _headings(pages[file], level)]
            assert not at or at in [sys.modules["file_keys"].anchor(each) for each in headings]
