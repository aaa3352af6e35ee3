"""What a submitter is told of services."""

from __future__ import annotations

from typing import Any

import pytest

from allranks.core.job.services import service_notes

BOARD = "to open t: allranks job tensorboard calm_fox"


@pytest.mark.parametrize(
    ("services", "notes"),
    [
        ({}, []),
        ({"t": {"type": "tensor_board"}}, [BOARD]),
        ({"t": {"type": "tensor_board", "log_dir": "./outputs/tb"}}, [BOARD]),
        (
            {"t": {"type": "tensor_board", "log_dir": "output/tb"}},
            [
                f"{BOARD}; `log_dir: output/tb` is not in it, but what is written below ./logs, "
                "./outputs and $SSM_TENSORBOARD_DIR"
            ],
        ),
        (
            {
                "t": {"type": "tensor_board", "log_dir": "logs"},
                "code": {"type": "vs_code"},
                "lab": {"type": "jupyter_lab"},
                "mine": {"type": "my_dashboard", "port": 8501},
                "any": {"port": 1},
            },
            [
                BOARD,
                "the services code (vs_code), lab (jupyter_lab), "
                "mine (my_dashboard), any are recorded but not started",
            ],
        ),
    ],
)
def test_notes(services: dict[str, dict[str, Any]], notes: list[str]) -> None:
    assert [*service_notes("calm_fox", services)] == notes
