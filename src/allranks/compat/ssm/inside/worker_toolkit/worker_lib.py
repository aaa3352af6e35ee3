"""``WorkerConfig``: what a job of simple-sagemaker finds around it, as attributes. For any Python
from 3.7 on."""

import os

from allranks_standard import standard_modules  # type: ignore[import-not-found,unused-ignore]

with standard_modules():
    import json
    import logging

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping


class WorkerConfig:
    """With ``per_instance_state`` the folder of the instance's own state is made; those of others
    stay, since nodes may share the state. ``set_debug_level`` sets the level of
    the root logger to SM_LOG_LEVEL. ``update_argv`` has no effect: arguments are in place."""

    def __init__(self, per_instance_state=True, set_debug_level=True, update_argv=True):
        # type: (bool, bool, bool) -> None
        if set_debug_level:
            self.setDebugLevel()
        env = os.environ
        self.channels = json.loads(env.get("SM_CHANNELS", "[]"))
        self.channel_data = self.channel_model = ""
        for name in self.channels:
            setattr(self, "channel_%s" % name, env.get("SM_CHANNEL_%s" % name.upper(), ""))
        self.hps = json.loads(env.get("SM_HPS", "{}"))
        self.model_dir = env.get("SM_MODEL_DIR", "")
        self.output_data_dir = env.get("SM_OUTPUT_DATA_DIR", "")
        self.output_dir = env.get("SM_OUTPUT_DIR", "")
        self.input_dir = env.get("SM_INPUT_DIR", "")
        self.input_config_dir = env.get("SM_INPUT_CONFIG_DIR", "")
        self.input_data_config = env.get("SM_INPUT_DATA_CONFIG", "")
        self.resource_config = env.get("SM_RESOURCE_CONFIG", "")
        self.state = env.get("SSM_STATE", "")
        self.current_host = env.get("SM_CURRENT_HOST", "")
        self.hosts = json.loads(env.get("SM_HOSTS", "[]"))
        self.host_rank = int(env.get("SSM_HOST_RANK", "0"))
        self.num_nodes = int(env.get("SSM_NUM_NODES", "1"))
        self.num_gpus = int(env.get("SM_NUM_GPUS", "0"))
        self.num_cpus = int(env.get("SM_NUM_CPUS", "1"))
        self.job_name = env.get("SAGEMAKER_JOB_NAME", "")
        self.network_interface_name = env.get("SM_NETWORK_INTERFACE_NAME", "")
        self.tensorboard_dir = env.get("SSM_TENSORBOARD_DIR", "")
        self.instance_state = env.get("SSM_INSTANCE_STATE", "")
        if per_instance_state:
            self.initMultiWorkersState()

    def __getattr__(self, name):  # type: (str) -> Any
        """Scripts call it by name, for attributes that are there, too."""
        return object.__getattribute__(self, name)

    @property
    def config(self):  # type: () -> Any
        return self

    def setDebugLevel(self):  # type: () -> None
        logging.getLogger().setLevel(int(os.environ.get("SM_LOG_LEVEL", logging.INFO)))

    def initMultiWorkersState(self):  # type: () -> None
        """Make the instance's folder of the state."""
        if self.instance_state:
            os.makedirs(self.instance_state, exist_ok=True)

    def updateNamespace(self, namespace, fields_mapping):
        # type: (Any, Mapping[str, str]) -> None
        """Copy fields to a namespace: ``{"num_cpus": "workers"}``."""
        for ours, theirs in fields_mapping.items():
            setattr(namespace, theirs, getattr(self, ours))
