"""What a submitter is told of services."""

from __future__ import annotations

from typing import Any

import pytest

from allranks.core.job.services import public_keys, service_notes, service_tasks
from allranks.errors import SpecError
from allranks.spec.job import parse

BOARD = "to open t: allranks job tensorboard calm_fox"


FORWARD = "allranks job port-forward calm_fox"
PUBLIC = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl me"


@pytest.mark.parametrize(
    ("services", "notes"),
    [
        ({}, []),
        ({"t": {"type": "tensor_board", "log_dir": "./outputs/tb"}}, [BOARD]),
        (
            {"lab": {"type": "jupyter_lab"}, "mine": {"type": "my_dashboard", "port": 8501}},
            [f"to open lab: {FORWARD} lab", f"to open mine: {FORWARD} mine"],
        ),
        ({"c": {"command": "x"}, "Studio": {"type": "studio"}}, [f"to open c: {FORWARD} c"]),
        (
            {"a": {"type": "dashboard"}, "b": {}},
            [
                f"the service {name} has neither a command nor a port, and nothing is started"
                for name in ("a (dashboard)", "b")
            ],
        ),
        (
            {"s": {"type": "ssh", "ssh_public_keys": PUBLIC}, "n": {"type": "ssh"}},
            [f"to open {name}: allranks job ssh-config calm_fox" for name in "sn"],
        ),
        (
            {"s": {"type": "ssh", "ssh_public_keys": "<paste it>"}},
            [
                "to open s: allranks job ssh-config calm_fox",
                "`ssh_public_keys` of s is no public key, and lets nobody in",
            ],
        ),
    ],
)
def test_notes(services: dict[str, dict[str, Any]], notes: list[str]) -> None:
    assert [*service_notes("calm_fox", services)] == notes


@pytest.mark.parametrize("kind", ["jupyter", "jupiter_lab", "tensor_bord"])
def test_a_misspelt_type_that_nothing_would_start_is_refused(kind: str) -> None:
    spec = {"command": "x", "environment": "current"}
    with pytest.raises(SpecError, match=f"`{kind.lower()}` is not a type of service") as caught:
        parse({**spec, "services": {"a": {"type": kind}}})
    (problem,) = caught.value.problems
    assert (problem.where, problem.hint[:12]) == ("services.a", "did you mean")
    for own in ({"type": kind, "port": 80}, {"type": kind, "command": "x"}, {"type": "grafana"}):
        parse({**spec, "services": {"a": own}})


def test_a_node_has_nothing_of_a_service_without_a_program_and_a_port():
    spec = {"command": "x", "services": {"a": {"type": "grafana"}, "b": {"port": 80}, "c": {}}}
    assert [task.name for task in service_tasks(parse(spec).services)] == ["b"]


@pytest.mark.parametrize("line", ["", "#", "ssh-rsa", "ssh-rsa AAAA", "ssh-rsa é", PUBLIC[4:]])
def test_what_is_no_public_key(line: str) -> None:
    assert public_keys(f"{line}\n{PUBLIC}\n") == [PUBLIC]


def test_names_in_commands_are_quoted():
    (note,) = service_notes("calm_fox", {"my app's": {"port": 80}})
    assert note == """to open my app's: allranks job port-forward calm_fox 'my app'"'"'s'"""
