"""Which files are of batch endpoints and their deployments."""

from __future__ import annotations

from typing import Any

import pytest

from allranks.spec.batch import is_batch


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"type": "model", "settings": {}}, True),
        ({"type": "pipeline"}, True),
        ({"settings": {"mini_batch_size": 7}}, True),
        ({"output_action": "append_row"}, True),
        ({"settings": 7}, False),
        ({"type": "managed", "scale_settings": {"type": "default"}}, False),
    ],
)
def test_a_file_without_a_schema_is_known_by_its_keys(data: dict[str, Any], expected: bool):
    assert is_batch({"name": "b", "endpoint_name": "e", **data}) is expected
