"""What each key of job files and of asset files means, by model and field.

May import nothing. Data for the reference pages. It is not in the models, to keep them cheap to
import. Subclasses inherit the descriptions of their base. A test checks that all fields have one.
"""

from __future__ import annotations

from collections.abc import Mapping

from allranks.spec.descriptions.assets import ASSETS
from allranks.spec.descriptions.batch import BATCH
from allranks.spec.descriptions.endpoint import ENDPOINT
from allranks.spec.descriptions.job import JOB
from allranks.spec.descriptions.pipeline import PIPELINE
from allranks.spec.descriptions.sweep import SWEEP

FIELDS: Mapping[str, Mapping[str, str]] = {
    **JOB,
    **SWEEP,
    **PIPELINE,
    **ASSETS,
    **ENDPOINT,
    **BATCH,
}
