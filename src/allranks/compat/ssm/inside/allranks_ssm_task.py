"""Runs a task of simple-sagemaker on one node: makes what SageMaker's containers have, runs the
entry point, and fails if that has written a failure file. For any Python from 3.7 on.

Where this process may mount (root, in a mount namespace of its own), `/opt/ml` and `/state` are
real, and the nodes are called algo-1, algo-2, …. Elsewhere the variables have the same folders
under other paths, and the nodes are called by their addresses.
"""

import os
import sys

from allranks_standard import standard_modules  # type: ignore[import-not-found,unused-ignore]

with standard_modules():
    import ctypes
    import json
    import shlex
    import shutil
    import signal
    import subprocess
    import tarfile
    import tempfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List

_NEWNS, _BIND, _PRIVATE, _REC = 0x20000, 4096, 1 << 18, 16384
_OURS = ("allranks_ssm_task.py", "allranks_ssm_task.json", "worker_toolkit")


class Node:
    """The folders of this node, and whether they are at their real paths."""

    def __init__(self, config):  # type: (Dict[str, Any]) -> None
        env = os.environ
        self.config, self.code = config, os.getcwd()
        self.rank = int(env.get("ALLRANKS_NODE_RANK", "0"))
        self.addresses = [node["address"] for node in json.loads(env["ALLRANKS_NODES"])]
        self.base = tempfile.mkdtemp(prefix="allranks-ssm-")
        self.is_real = _own_namespace()
        names = ["algo-%d" % (n + 1) for n in range(len(self.addresses))]
        self.hosts = names if self.is_real else self.addresses
        self.instance = names[self.rank]
        # By path below the base: the folder that is there.
        # Of outputs, those of the first node are kept; models are merged.
        output = env["SM_OUTPUT_DATA_DIR"] if self.rank == 0 else os.path.join(self.base, ".lost")
        self.places = {
            "code": self.code,
            "model": env["SM_MODEL_DIR"],
            "output/data": output,
            "output/tensorboard": env["SSM_TENSORBOARD_DIR"],
        }
        if config["kind"] == "process":
            self.places = {
                "processing/input/code": self.code,
                "processing/output": env["SM_OUTPUT_DATA_DIR"],
                "processing/state": env["SSM_STATE"],
            }
        for name, channel in config["channels"].items():
            self.places[self.of_channel(name)] = self._channel(name, channel)
        self.state = env["SSM_STATE"]

    def of_channel(self, name):  # type: (str) -> str
        """The path of a channel below the base."""
        if self.config["kind"] != "process":
            return "input/data/" + name
        return "processing/data" if name == "data" else "processing/input/data/" + name

    def _channel(self, name, channel):  # type: (str, Dict[str, Any]) -> str
        """A folder with the data of a channel: that of a file's holds the file, and what another
        task left as an archive is one."""
        source = os.environ["AZURE_ML_INPUT_%s" % name]
        archive = channel.get("archive")
        if not archive and os.path.isdir(source):
            return source
        folder = os.path.join(self.base, ".channels", name)
        os.makedirs(folder)
        if archive and channel["distribution"] == "ShardedByS3Key" and self.rank > 0:
            pass  # it is one file, and the first node has it
        elif archive:
            with tarfile.open(os.path.join(folder, archive), "w:gz") as tar:
                for each in sorted(os.listdir(source)):
                    tar.add(os.path.join(source, each), each)
        else:
            shutil.copy(source, folder)
        return folder

    def set_up(self):  # type: () -> None
        """Put the folders in place."""
        kind = "config" if self.config["kind"] == "process" else "input/config"
        configuration = os.path.join(self.base, kind)
        for folder in (
            configuration,
            os.path.join(self.base, "output"),  # also for what a script says of its failure
            *self.places.values(),
            *(os.path.join(self.base, place) for place in self.places),
        ):
            os.makedirs(folder, exist_ok=True)
        for name, content in self._files().items():
            with open(os.path.join(configuration, name + ".json"), "w") as file:
                json.dump(content, file)
        if self.config["kind"] == "shell":
            # As simple-sagemaker's launcher of lines makes it; scripts make it by WorkerConfig.
            os.makedirs(os.path.join(self.state, self.instance), exist_ok=True)
        if not self.is_real:
            return
        for path, folder in self.places.items():
            _mount(folder, os.path.join(self.base, path))
        os.makedirs("/opt/ml", exist_ok=True)
        os.makedirs("/state", exist_ok=True)
        _mount(self.base, "/opt/ml")
        _mount(self.state, "/state")
        hosts = os.path.join(self.base, ".hosts")
        with open(hosts, "w") as file, open("/etc/hosts") as before:
            file.write(before.read())
            for name, address in zip(self.hosts, self.addresses):  # noqa: B905  # old Pythons
                file.write("\n%s %s" % (address, name))
            file.write("\n")
        _mount(hosts, "/etc/hosts")

    def path(self, name):  # type: (str) -> str
        """The path at which the script finds a folder."""
        if self.is_real:
            return "/opt/ml/" + name
        return self.places.get(name, os.path.join(self.base, name))

    def _files(self):  # type: () -> Dict[str, Any]
        hosts = {"current_host": self.hosts[self.rank], "hosts": self.hosts}
        if self.config["kind"] != "process":
            hosts["network_interface_name"] = os.environ.get("SM_NETWORK_INTERFACE_NAME", "")
        else:
            job = {"ProcessingJobName": os.environ["ALLRANKS_JOB"]}
            return {"resourceconfig": hosts, "processingjobconfig": job}
        return {
            "resourceconfig": hosts,
            "hyperparameters": {k: json.dumps(v) for k, v in self.config["hps"].items()},
            "inputdataconfig": self._channels(),
        }

    def _channels(self):  # type: () -> Dict[str, Any]
        more = {"TrainingInputMode": "File", "RecordWrapperType": "None"}
        return {
            name: dict(more, S3DistributionType=each["distribution"])
            for name, each in self.config["channels"].items()
        }

    def variables(self):  # type: () -> Dict[str, str]
        """SageMaker's variables, for its training toolkit and for simple-sagemaker."""
        config, job = self.config, os.environ["ALLRANKS_JOB"]
        process = config["kind"] == "process"
        state = "/state" if self.is_real else self.state
        if process:
            state = self.path("processing/state") if self.is_real else self.state
        channels = {name: self.path(self.of_channel(name)) for name in config["channels"]}
        variables = {
            "SM_HOSTS": _json(self.hosts),
            "SM_CURRENT_HOST": self.hosts[self.rank],
            "SM_RESOURCE_CONFIG": _json(self._files()["resourceconfig"]),
            "SM_CHANNELS": _json(sorted(channels)),
            "SM_HPS": _json(config["hps"]),
            "SM_LOG_LEVEL": "20",
            "SM_CURRENT_INSTANCE_TYPE": config["instance_type"],
            "SAGEMAKER_JOB_NAME": job,
            "TRAINING_JOB_NAME": job,
            "SAGEMAKER_REGION": "here",
            "SSM_NUM_NODES": str(len(self.hosts)),
            "SSM_HOST_RANK": str(self.rank),
            "SSM_STATE": state,
            "SSM_INSTANCE_STATE": "%s/%s" % (state, self.instance),
        }
        for name, path in channels.items():
            variables["SM_CHANNEL_%s" % name.upper()] = path
            variables["SSM_CHANNEL_%s" % name.upper()] = path
        for name, value in config["hps"].items():
            variables["SM_HP_%s" % name.upper()] = value if isinstance(value, str) else _json(value)
        if process:
            variables["SSM_OUTPUT"] = self.path("processing/output")
            return variables
        variables.update(self._of_training())
        variables["SM_TRAINING_ENV"] = _json({k[3:].lower(): v for k, v in variables.items()})
        return variables

    def _of_training(self):  # type: () -> Dict[str, str]
        config, entry = self.config, self.config.get("entry", "")
        arguments = config.get("arguments", [])
        return {
            "SM_MODEL_DIR": self.path("model"),
            "SM_OUTPUT_DATA_DIR": self.path("output/data"),
            "SM_OUTPUT_DIR": self.path("output"),
            "SM_OUTPUT_INTERMEDIATE_DIR": self.path("output/intermediate"),
            "SM_INPUT_DIR": self.path("input"),
            "SM_INPUT_CONFIG_DIR": self.path("input/config"),
            "SM_INPUT_DATA_CONFIG": _json(self._channels()),
            "SM_USER_ARGS": _json(arguments),
            "SM_MODULE_DIR": self.path("code"),
            "SM_MODULE_NAME": os.path.splitext(entry)[0],
            "SM_USER_ENTRY_POINT": entry,
            "SM_FRAMEWORK_PARAMS": "{}",
            "SM_CURRENT_INSTANCE_GROUP": "homogeneousCluster",
            "SM_CURRENT_INSTANCE_GROUP_HOSTS": _json(self.hosts),
            "SM_IS_HETERO": "false",
            "SAGEMAKER_PROGRAM": entry,
            "SAGEMAKER_SUBMIT_DIRECTORY": self.path("code"),
            "SAGEMAKER_BASE_DIR": "/opt/ml" if self.is_real else self.base,
            "CURRENT_HOST": self.hosts[self.rank],
            "SSM_OUTPUT": self.path("output/data"),
            "SSM_TENSORBOARD_DIR": self.path("output/tensorboard"),
        }

    def words(self):  # type: () -> List[str]
        """The program and its arguments."""
        config, arguments = self.config, self.config.get("arguments", [])
        if config["kind"] == "shell":
            return ["/bin/bash", "-c", config["command"]]
        if config["kind"] == "run":
            if config["entry"].endswith(".py"):
                return ["python", config["entry"], *arguments]
            return ["/bin/sh", "-c", "./%s" % shlex.join([config["entry"], *arguments])]
        if config.get("entrypoint"):
            return [*config["entrypoint"], *arguments]
        code = os.path.join(self.path("processing/input/code"), config["entry"])
        return [*config["command"], code, *arguments]

    def failure(self):  # type: () -> str
        """What the script wrote to say that it failed."""
        name = "output/message" if self.config["kind"] == "process" else "output/failure"
        try:
            with open(os.path.join(self.base, name), errors="replace") as file:
                return file.read().strip() or "no reason given"
        except OSError:
            return ""


def _json(value):  # type: (Any) -> str
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _own_namespace():  # type: () -> bool
    """Whether what this process mounts from now on is seen by it alone."""
    if os.geteuid() != 0:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEWNS) != 0:
        return False
    return bool(libc.mount(b"none", b"/", None, _PRIVATE | _REC, None) == 0)


def _mount(source, target):  # type: (str, str) -> None
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(os.fsencode(source), os.fsencode(target), None, _BIND | _REC, None) != 0:
        number = ctypes.get_errno()
        raise OSError(number, "cannot mount %s: %s" % (target, os.strerror(number)))


def main():  # type: () -> int
    with open("allranks_ssm_task.json") as file:
        config = json.load(file)
    for name in _OURS if config["kind"] == "shell" else _OURS[:2]:
        shutil.rmtree(name) if os.path.isdir(name) else os.unlink(name)
    node = Node(config)
    try:
        node.set_up()
        env = dict(os.environ, **node.variables())
        env.update(config.get("env", {}))
        cwd = "/opt/ml/code" if node.is_real and config["kind"] != "process" else node.code
        env["PWD"] = cwd  # bash believes it
        child = subprocess.Popen(node.words(), env=env, cwd=cwd)
        # The child gets it too, and has until the end of the grace.
        signal.signal(signal.SIGTERM, lambda number, frame: None)
        code = child.wait()
        failure = node.failure()
        if failure:
            print("the task has failed: %s" % failure, file=sys.stderr)
        return (128 - code if code < 0 else code) or int(bool(failure))
    except OSError as error:
        print("the task cannot be started: %s" % error, file=sys.stderr)
        return 127
    finally:
        _clean(node)


def _clean(node):  # type: (Node) -> None
    """Remove the base, and nothing that is mounted below it."""
    if node.is_real:
        libc = ctypes.CDLL(None)
        for target in ("/etc/hosts", "/state", "/opt/ml"):
            libc.umount2(os.fsencode(target), 2)
        for path in node.places:
            libc.umount2(os.fsencode(os.path.join(node.base, path)), 2)
        with open("/proc/self/mounts") as mounts:
            if node.base in mounts.read():
                return
    shutil.rmtree(node.base, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
