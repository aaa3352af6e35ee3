"""Types that answers about several subjects share."""

from __future__ import annotations

from typing import Any

# A mapping as a user wrote it: a job file or a part of it, parameters, options of an engine.
Document = dict[str, Any]
# Any JSON value.
Json = Any
# A NamedTuple of the plan as JSON: the keys are its fields, see `core.plan`.
Packed = dict[str, Any]
# A number that JSON lacks is a string: "NaN", "Infinity", "-Infinity".
Number = float | str
