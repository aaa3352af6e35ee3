"""Job files and what becomes of them: here, and in Azure ML's own client.

A case is the keys beside ``command: x`` and ``environment: azureml:e:1``, or a whole file where it
begins with ``command`` or ``#``. Beside the files lie ``src/`` and ``data/f``.
"""

from __future__ import annotations

BASE = "command: x\nenvironment: azureml:e:1\n"
SCHEMA = "https://azuremlschemas.azureedge.net/latest/commandJob.schema.json"


def _each(pattern: str, words: str) -> dict[str, str]:
    return _all(*(pattern % word for word in words.split()))


def _all(*cases: str) -> dict[str, str]:
    return {case: case for case in cases}


_PATHS = (
    "./data ./data/f https://example.com/y http://example.com/y wasbs://c@a.example/y s3://b/k "
    "abfss://c@a.example/y gs://b/k azureml://datastores/d/paths/p azureml:n:1 azureml:n@latest "
    "azureml://jobs/j/outputs/o/paths/p runs:/a/b"
)
_TYPES = "uri_file uri_folder mltable mlflow_model custom_model triton_model URI_FOLDER MLTable"
_SERVICES = "ssh jupyter_lab tensor_board vs_code SSH JupyterLab TensorBoard VSCode custom MyOwn"
_IDENTITIES = (
    "managed managed_identity user_identity aml_token Managed ManagedIdentity UserIdentity "
    "AMLToken amlToken"
)

# Both take these.
ACCEPTED: dict[str, str] = {
    "nothing more": "",
    **_each("type: %s", "command"),
    **_each("$schema: %s", SCHEMA),
    **_all("name: a", "display_name: a b", "experiment_name: e", "description: 'a: b'"),
    **_all("tags: {a: b, c: }", "properties: {a: b}", "parent_job_name: p"),
    **_all("environment_variables: {A: x, B: 1, C: true, D: , E: 1.5}"),
    **_each("code: %s", "./src src ./data/f azureml:c:1 git+https://example.com/y"),
    **_each("compute: %s", "azureml:cpu cpu local"),
    **_each(
        "command: x\nenvironment: %s",
        "azureml:e:1 azureml:e@latest azureml:e azureml://registries/R/environments/N/versions/1 "
        "azureml://registries/R/environments/N/labels/L",
    ),
    **_all(
        "command: x\nenvironment: {image: i}",
        "command: x\nenvironment: {image: i, conda_file: ./data/f}",
        "command: x\nenvironment: {image: i, conda_file: {dependencies: [pip, {pip: [torch]}]}}",
        "command: x\nenvironment: {build: {path: ./data, dockerfile_path: f}}",
        "command: x\nenvironment: {name: n, version: 1, image: i, description: d, tags: {a: b}}",
        "command: x\nenvironment: {image: i, os_type: linux, datastore: d}",
    ),
    **_all(
        "resources: {instance_count: 2, instance_type: a, max_instance_count: 3, shm_size: 2g}",
        "resources: {instance_count: '2', locations: [a], properties: {a: {b: 1}}}",
        "resources: {docker_args: --ipc=host}",
        "resources: {docker_args: [a, b]}",
    ),
    **_each("distribution: {type: %s}", "pytorch PyTorch mpi MPI tensorflow TensorFlow ray Ray"),
    **_all(
        "distribution: {type: pytorch, process_count_per_instance: 4}",
        "distribution: {type: mpi, process_count_per_instance: 4}",
        "resources: {instance_count: 2}\n"
        "distribution: {type: tensorflow, worker_count: 2, parameter_server_count: 1}",
        "distribution: {type: ray, port: 1, address: a, include_dashboard: true, "
        "dashboard_port: 2, head_node_additional_args: a, worker_node_additional_args: b}",
    ),
    **_all("limits: {timeout: 60}", "limits: {timeout: '60'}", "limits: {timeout: 1.5}"),
    **_all("inputs: {a: 1, b: 0.5, c: true, d: text}", "inputs: {a: {value: 3}}"),
    **_each("inputs: {a: {path: '%s'}}", _PATHS),
    **_each("inputs: {a: {type: mlflow_model, path: '%s'}}", "./data azureml:m:1"),
    **_each("inputs: {a: {type: %s, path: ./data}}", _TYPES),
    **_each("inputs: {a: {path: ./data, mode: %s}}", "ro_mount download direct RO_MOUNT"),
    **_each(
        "inputs: {a: {type: mltable, path: ./data, mode: %s}}",
        "ro_mount download direct eval_mount eval_download",
    ),
    **_all("inputs: {a: {path: ./data, datastore: d}}"),
    **_each("inputs: {%s: 1}", "a-b 1a a.b"),
    **_each("outputs: {%s: {}}", "a-b"),
    **_all(
        "command: x ${{inputs.a-b}} ${{inputs.1a}} ${{inputs.a.b}}\n"
        "environment: azureml:e:1\ninputs: {a-b: 1, 1a: 2, a.b: {path: ./data}}"
    ),
    **_each("outputs: {a: {type: %s}}", _TYPES),
    **_each("outputs: {a: {mode: %s}}", "mount rw_mount upload direct RW_MOUNT"),
    **_each("outputs: {a: {path: '%s'}}", "./out azureml://datastores/d/paths/${{name}}/"),
    **_all("outputs: {a: , b: {}}", "outputs: {a: {name: n, version: '1'}}"),
    **_each("services: {a: {type: %s}}", _SERVICES),
    **_all(
        "services: {a: {type: ssh, ssh_public_keys: k, port: 22, nodes: all}}",
        "services: {a: {type: tensor_board, log_dir: outputs, properties: {a: b}}}",
        "services: {a: {type: ssh, endpoint: e, status: s, error_message: m}}",
        "services: {a: {port: 1}}",
    ),
    **_each("identity: {type: %s}", _IDENTITIES),
    **_all("identity: {type: managed, client_id: a, object_id: b}"),
    **_each("queue_settings: {job_tier: %s}", "spot basic standard premium 'null' Spot"),
    **_each("queue_settings: {priority: %s}", "low medium high High"),
    **_all("id: x", "status: Completed", "log_files: {a: b}", "creation_context: {a: b}"),
    **_all(
        "command: x ${{inputs.lr}} $[[--w ${{inputs.w}}]] ${{name}}\n"
        "environment: azureml:e:1\ninputs: {lr: 1}"
    ),
    **_all("inputs:\n  a: &a {path: ./data}\n  b: *a"),
}

# Both refuse these.
REFUSED: dict[str, str] = {
    "an empty file": "#",
    "a list": "#\n- a",
    "not YAML": "#\na: b: c",
    "no command": "#\nenvironment: azureml:e:1",
    "an empty command's key": "command:\nenvironment: azureml:e:1",
    "a list as command": "command: [a]\nenvironment: azureml:e:1",
    **_each("%s: 1", "comand jobs component is_deterministic trial instance_count"),
    **_each("type: %s", "x commandjob"),
    **_all("tags: [a]", "tags: {a: {b: 1}}", "properties: {a: {b: 1}}", "name: [a]"),
    **_each("command: x\nenvironment: %s", "e: [a]"),
    **_all(
        "command: x\nenvironment: {image: i, x: 1}",
        "command: x\nenvironment: {image: i, os_type: beos}",
        "command: x\nenvironment: {image: i, properties: {a: b}}",
        "command: x\nenvironment: {dependencies: [a]}",
        "command: x\nenvironment: {image: {a: b}}",
        "command: x\nenvironment: {build: ./data}",
    ),
    **_all(
        "resources: {instance_cout: 1}",
        "resources: {instance_count: a}",
        "resources: {instance_count: }",
        "resources: {instance_count: [1]}",
        "resources: {locations: a}",
        "resources: {docker_args: {a: b}}",
        "resources: {properties: a}",
        "resources: 2",
    ),
    **_each("distribution: {type: %s}", "x pytorhc spark"),
    **_all(
        "distribution: pytorch",
        "distribution: {}",
        "distribution: {process_count_per_instance: 1}",
        "distribution: {type: pytorch, process_count_per_instance: a}",
        "distribution: {type: tensorflow, worker_count: a}",
        "distribution: {type: ray, port: a}",
        "distribution: {type: ray, include_dashboard: maybe}",
    ),
    **_all("limits: {timeout: soon}", "limits: {timeuot: 1}", "limits: {trial_timeout: 1}"),
    **_all("inputs: [a]", "inputs: {a: [1]}", "inputs: {a: }", "inputs: {a: {value: [1]}}"),
    **_each("inputs: {a: {type: %s, path: ./data}}", "x uri_fodler"),
    **_each(
        "inputs: {a: {type: uri_folder, path: ./data, mode: %s}}",
        "rw_mount upload mount eval_mount x",
    ),
    **_each("inputs: {a: {type: custom_model, path: ./data, mode: %s}}", "eval_download upload"),
    **_all(
        "inputs: {a: {path: ./data, x: 1}}",
        "inputs: {a: {type: integer, default: 3}}",
        "inputs: {a: {path: ./data, optional: true}}",
        "inputs: {a: {path: [./data]}}",
    ),
    **_each("outputs: {a: {mode: %s}}", "ro_mount download x"),
    **_all(
        "outputs: {a: p}",
        "outputs: {a: {type: x}}",
        "outputs: {a: {x: 1}}",
        "outputs: {a: {path: [p]}}",
        "outputs: [a]",
    ),
    **_all(
        "services: {a: ssh}",
        "services: {a: }",
        "services: {a: {type: ssh, port: a}}",
        "services: {a: {type: ssh, nodes: '1'}}",
        "services: {a: {type: ssh, log_dir: l}}",
        "services: {a: {type: jupyter_lab, log_dir: l}}",
        "services: {a: {type: ssh, x: 1}}",
        "services: [a]",
    ),
    **_each("identity: {type: %s}", "x user"),
    **_all(
        "identity: managed",
        "identity: {}",
        "identity: {type: managed, x: a}",
        "identity: {type: user_identity, client_id: a}",
    ),
    **_each("queue_settings: {job_tier: %s}", "x free"),
    **_each("queue_settings: {priority: %s}", "x 1"),
    **_all("queue_settings: {x: 1}"),
}

# Ours alone takes these: by the name that docs/how-to/azureml.md explains.
SUPERSETS: dict[str, dict[str, str]] = {
    "default-environment": _all("command: x"),
    "current": _each("command: x\nenvironment: %s", "current"),
    "no-prefix": _each("command: x\nenvironment: %s", "e e:1"),
    "environment-keys": _all(
        "command: x\nenvironment: {pip: [torch]}",
        "command: x\nenvironment: {requirements: r.txt, python: 3.11}",
    ),
    "distributions": _each("distribution: {type: %s}", "deepspeed horovod jax none"),
    "distribution-keys": _all(
        "distribution: {type: pytorch, added_property: 1}",
        "distribution: {type: tensorflow, chief_count: 1}",
        "distribution: {type: mpi, implementation: mpich}",
    ),
    "our-keys": _all(
        "metrics: {l: 'a(b)'}",
        "state: s",
        "session: {idle_timeout: 60}",
        "inside: dev-a",
        "warm: [torch]",
        "retry: {max_attempts: 2, on: [node_lost]}",
        "hang_timeout: 5",
        "keep_work: 5g",
        "resources: {gpus_per_instance: 1}",
    ),
    "spelling": {
        **_each("type: %s", "Command COMMAND"),
        **_each("distribution: {type: %s}", "py_torch tensor_flow"),
        **_each("inputs: {a: {type: %s, path: ./data}}", "UriFolder uri-folder"),
        **_each("inputs: {a: {path: ./data, mode: %s}}", "RoMount read_only_mount"),
        **_each("outputs: {a: {mode: %s}}", "RwMount read_write_mount"),
        **_each("identity: {type: %s}", "amltoken user-identity"),
        **_all("services: {a: {job_service_type: JupyterLab}}"),
    },
    "text": {
        **_each("%s: 1", "name display_name experiment_name description compute code"),
        **_all(
            "command: 1\nenvironment: azureml:e:1",
            "tags: {a: 1, b: true, c: 1.10}",
            "tags: {a: 2024-01-01}",
            "inputs: {a: 2024-01-01}",
            "properties: {a: 1}",
            "resources: {shm_size: 2}",
            "identity: {type: managed, client_id: 1}",
        ),
    },
    "empty-sections": {
        **_each("%s:", "tags inputs outputs resources limits services identity distribution"),
        **_each("%s:", "name display_name description compute code queue_settings"),
        **_all("limits: {timeout: }"),
    },
    "later": _all(
        "code: ./nope",
        "command: x\nenvironment: {image: i, conda_file: ./nope}",
        "command: x\nenvironment: {build: {path: ./nope}}",
    ),
    "msi": _all("identity: {type: managed, msi_resource_id: a}"),
}

# Azure's client takes these, and its service or the job would fail: ours refuses at once.
SOONER: dict[str, dict[str, str]] = {
    "counts": _all(
        "resources: {instance_count: 0}",
        "resources: {instance_count: -1}",
        "resources: {instance_count: 2.5}",
        "distribution: {type: pytorch, process_count_per_instance: 0}",
        "distribution: {type: tensorflow, worker_count: 3}",
        "limits: {timeout: 0}",
    ),
    "names": {
        **_each("name: %s", "a/b ä ''"),
        **_all("name: a b", "inputs: {a b: 1}", "inputs: {'-a': 1}", "outputs: {'a/b': {}}"),
    },
    "nothing-given": _all(
        "inputs: {a: {type: uri_folder}}",
        "inputs: {a: {}}",
        "command: ''\nenvironment: azureml:e:1",
        "command: x\nenvironment: {build: {dockerfile_path: f}}",
    ),
    "references": _all(
        "command: x ${{inputs.a}}\nenvironment: azureml:e:1",
        "command: x ${{outputs.a}}\nenvironment: azureml:e:1",
        "command: x ${{search_space.a}}\nenvironment: azureml:e:1",
        "outputs: {a: {path: '${{parent.inputs.a}}'}}",
    ),
    "two-at-once": _all(
        "tags: {}\ntags: {}",
        "command: x\nenvironment: {image: i, build: {path: ./data}}",
    ),
    "eval-modes": _all("inputs: {a: {path: ./data, mode: eval_mount}}"),
    "variables": _all("environment_variables: {a: [1]}"),
    "service-types": _all("services: {a: {type: jupiter_lab}}"),
}


def whole(case: str) -> str:
    """The file of a case."""
    return case if case.startswith(("command", "#")) else BASE + case
