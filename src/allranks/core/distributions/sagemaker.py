"""SageMaker's names for what every job has, so that scripts written for its containers run.

Source: the README of sagemaker-training-toolkit (SM_*), and simple-sagemaker's (SSM_*).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence

from allranks.core.distributions.topology import Rank
from allranks.core.plan import Place, Task


def environment(
    task: Task, rank: Rank, places: Sequence[Place], paths: Mapping[str, str]
) -> dict[str, str]:
    """SM_* and SSM_* of a rank, but for the counts of CPUs and GPUs, which only its node knows.

    Hosts are addresses: scripts connect to the first of them. ``paths`` also holds ``model_dir``,
    ``data_dir``, ``tensorboard_dir``, ``state_dir`` and ``instance_state_dir``.
    """
    hosts = [place.address for place in places]
    here = hosts[rank.node]
    channels = {e.name: paths[f"inputs.{e.name}"] for e in task.inputs if e.text is None}
    literals = {e.name: e.text for e in task.inputs if e.text is not None}
    parameters = {name: _typed(text) for name, text in {**literals, **task.parameters}.items()}
    interface = places[rank.node].interface
    variables = {
        "SM_HOSTS": json.dumps(hosts),
        "SM_CURRENT_HOST": here,
        "SM_CHANNELS": json.dumps(sorted(channels)),
        "SM_MODEL_DIR": paths["model_dir"],
        "SM_OUTPUT_DATA_DIR": paths["data_dir"],
        "SM_HPS": json.dumps(parameters),
        "SM_RESOURCE_CONFIG": json.dumps(
            {"current_host": here, "hosts": hosts, "network_interface_name": interface}
        ),
        "SM_NETWORK_INTERFACE_NAME": interface,
        "SSM_NUM_NODES": str(task.nodes),
        "SSM_HOST_RANK": str(rank.node),
        "SSM_OUTPUT": paths["data_dir"],
        "SSM_TENSORBOARD_DIR": paths["tensorboard_dir"],
        "SSM_STATE": paths["state_dir"],
        "SSM_INSTANCE_STATE": paths["instance_state_dir"],
        "ALLRANKS_STATE_DIR": paths["state_dir"],
    }
    for name, path in channels.items():
        variables[f"SM_CHANNEL_{_upper(name)}"] = path
        variables[f"SSM_CHANNEL_{_upper(name)}"] = path
    for name, value in parameters.items():
        variables[f"SM_HP_{_upper(name)}"] = value if isinstance(value, str) else json.dumps(value)
    return variables


def _upper(name: str) -> str:
    return name.upper().replace("-", "_").replace(".", "_")


def _typed(text: str) -> object:
    """A number or truth value as one, when JSON would write it as the user did: SageMaker's SM_HPS
    has types, and 1.10 may be a version."""
    try:
        value = json.loads({"True": "true", "False": "false"}.get(text, text))
    except ValueError:
        return text
    same = isinstance(value, bool) or json.dumps(value) == text
    return (
        value if isinstance(value, (bool, int, float)) and math.isfinite(value) and same else text
    )
