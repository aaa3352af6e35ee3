"""Pipeline files in the manner of public ones, and what becomes of them: here, and in Azure ML's
own client. They share the component files in ``FILES``."""

from __future__ import annotations

FILES = {
    "train.yml": """\
$schema: https://azuremlschemas.azureedge.net/latest/commandComponent.schema.json
name: train_model
display_name: Train
version: 1
type: command
inputs:
  data: {type: uri_folder}
  epochs: {type: integer, default: 3, min: 1, max: 100}
  lr: {type: number, default: 0.1}
  kind: {type: string, enum: [a, b], optional: true}
  fast: {type: boolean, default: false}
outputs:
  model: {type: mlflow_model}
code: src
environment: azureml:e:1
command: >-
  python train.py --data ${{inputs.data}} --epochs ${{inputs.epochs}} --lr ${{inputs.lr}}
  --fast ${{inputs.fast}} $[[--kind ${{inputs.kind}}]] --out ${{outputs.model}}
""",
    "score.yml": """\
type: command
name: score
version: "2"
is_deterministic: false
inputs:
  model: {type: mlflow_model}
  data: {type: uri_folder, description: what to score}
outputs:
  scores: {type: uri_file, mode: upload}
environment: azureml:e:1
command: python score.py ${{inputs.model}} ${{inputs.data}} ${{outputs.scores}}
""",
    "inner.yml": """\
$schema: https://azuremlschemas.azureedge.net/latest/pipelineComponent.schema.json
type: pipeline
name: inner
version: 1
inputs:
  data: {type: uri_folder}
  epochs: {type: integer, default: 2}
outputs:
  best: {type: mlflow_model}
jobs:
  one:
    type: command
    component: ./train.yml
    inputs: {data: '${{parent.inputs.data}}', epochs: '${{parent.inputs.epochs}}'}
    outputs: {model: '${{parent.outputs.best}}'}
""",
    "src/train.py": "print('trains')\n",
    "data/x.csv": "1\n",
}
HEAD = "type: pipeline\nsettings: {default_compute: azureml:cpu}\n"
INPUT = "inputs: {d: {type: uri_folder, path: ./data}}\n"
TRAIN = "  t: {type: command, component: ./train.yml, inputs: {data: '${{parent.inputs.d}}'}}\n"
INLINE = "command: 'echo hi', environment: 'azureml:e:1'"


def _steps(*lines: str, head: str = HEAD + INPUT) -> str:
    return head + "jobs:\n" + "".join(f"  {line}\n" for line in lines)


def _t(rest: str) -> str:
    """A step with the training component; ``rest`` are its other keys."""
    return f"t: {{type: command, component: ./train.yml, {rest}}}"


DATA = "data: '${{parent.inputs.d}}'"
SWEEP = (
    "search_space: {lr: {type: uniform, min_value: 0, max_value: 1}}, "
    "objective: {goal: minimize, primary_metric: loss}, "
    "limits: {max_total_trials: 4, max_concurrent_trials: 2}"
)

# Both take these.
ACCEPTED = {
    "one component": HEAD + INPUT + "jobs:\n" + TRAIN,
    "described": "display_name: p\ndescription: d\ntags: {a: b}\nexperiment_name: e\n"
    + HEAD
    + INPUT
    + "jobs:\n"
    + TRAIN,
    "inline": _steps(f"a: {{{INLINE}}}"),
    "inline with code": _steps(f"a: {{type: command, code: src, {INLINE}}}"),
    "inline resources": _steps(
        f"a: {{{INLINE}, resources: {{instance_count: 2, shm_size: 2g}}, "
        "distribution: {type: pytorch, process_count_per_instance: 2}}"
    ),
    "inline mpi": _steps(f"a: {{{INLINE}, distribution: {{type: mpi}}}}"),
    "inline variables": _steps(f"a: {{{INLINE}, environment_variables: {{A: 1}}}}"),
    "inline limits": _steps(f"a: {{{INLINE}, limits: {{timeout: 60}}}}"),
    "inline outputs": _steps(
        "a: {command: 'echo ${{outputs.o}}', environment: 'azureml:e:1', "
        "outputs: {o: {type: uri_folder, mode: rw_mount}}}"
    ),
    "an output without keys": _steps(
        "a: {command: 'echo ${{outputs.o}}', environment: 'azureml:e:1', outputs: {o: }}"
    ),
    "two steps": _steps(
        _t(f"inputs: {{{DATA}}}"),
        "s: {type: command, component: ./score.yml, inputs: "
        "{data: '${{parent.inputs.d}}', model: '${{parent.jobs.t.outputs.model}}'}}",
    ),
    "a diamond": _steps(
        f"a: {{type: command, component: ./train.yml, inputs: {{{DATA}}}}}",
        f"b: {{type: command, component: ./train.yml, inputs: {{{DATA}, epochs: 5}}}}",
        "s: {type: command, component: ./score.yml, inputs: "
        "{data: '${{parent.jobs.a.outputs.model}}', model: '${{parent.jobs.b.outputs.model}}'}}",
    ),
    "literals": _steps(_t(f"inputs: {{{DATA}, epochs: 7, lr: 0.5, kind: b, fast: true}}")),
    "literals as text": _steps(_t(f"inputs: {{{DATA}, epochs: '7', lr: '0.5', fast: 'true'}}")),
    "inputs of the pipeline": HEAD
    + "inputs: {d: {type: uri_folder, path: ./data}, n: 4, r: 0.2, k: a}\njobs:\n  "
    + _t(
        f"inputs: {{{DATA}, epochs: '${{{{parent.inputs.n}}}}', lr: '${{{{parent.inputs.r}}}}', "
        "kind: '${{parent.inputs.k}}'}"
    )
    + "\n",
    "an input of another step": _steps(
        f"a: {{type: command, component: ./train.yml, inputs: {{{DATA}, lr: 0.3}}}}",
        _t("inputs: {data: '${{parent.jobs.a.inputs.data}}', lr: '${{parent.jobs.a.inputs.lr}}'}"),
    ),
    "data by address": _steps(_t("inputs: {data: {type: uri_folder, path: 'azureml:d:1'}}")),
    "data by url": _steps(
        _t("inputs: {data: {type: uri_folder, path: 'https://example.com/data/', mode: download}}")
    ),
    "a mode for a bound input": _steps(
        _t("inputs: {data: {type: uri_folder, path: '${{parent.inputs.d}}', mode: download}}")
    ),
    "outputs of the pipeline": HEAD + INPUT + "outputs: {m: {type: mlflow_model, mode: upload}}\n"
    "jobs:\n  " + _t(f"inputs: {{{DATA}}}, outputs: {{model: '${{{{parent.outputs.m}}}}'}}") + "\n",
    "a named output": HEAD
    + INPUT
    + "outputs: {m: {type: mlflow_model, name: best, version: '1'}}\njobs:\n  "
    + _t(f"inputs: {{{DATA}}}, outputs: {{model: '${{{{parent.outputs.m}}}}'}}")
    + "\n",
    "a step's own output": _steps(
        _t(f"inputs: {{{DATA}}}, outputs: {{model: {{type: mlflow_model, mode: upload}}}}")
    ),
    "a step's compute": _steps(_t(f"inputs: {{{DATA}}}, compute: azureml:gpu")),
    "a step's resources": _steps(
        _t(f"inputs: {{{DATA}}}, resources: {{instance_count: 2}}, distribution: {{type: pytorch}}")
    ),
    "a step's environment": _steps(_t(f"inputs: {{{DATA}}}, environment: 'azureml:other:2'")),
    "a step's words": _steps(
        _t(f"inputs: {{{DATA}}}, display_name: T, description: x, tags: {{a: b}}, comment: why")
    ),
    "a registered component": _steps(
        "a: {type: command, component: 'azureml:somewhere:1', inputs: {x: 1}}"
    ),
    "the latest component": _steps(
        "a: {type: command, component: 'azureml:somewhere@latest', inputs: {x: 1}}"
    ),
    "a file with its scheme": _steps(
        f"a: {{type: command, component: 'file:./train.yml', inputs: {{{DATA}}}}}"
    ),
    "a nested pipeline": _steps(
        f"n: {{type: pipeline, component: ./inner.yml, inputs: {{{DATA}}}}}",
        "s: {type: command, component: ./score.yml, inputs: "
        "{data: '${{parent.inputs.d}}', model: '${{parent.jobs.n.outputs.best}}'}}",
    ),
    "a sweep of a component": _steps(
        f"w: {{type: sweep, trial: ./train.yml, inputs: {{{DATA}}}, sampling_algorithm: random, "
        f"{SWEEP}}}"
    ),
    "a sweep with early termination": _steps(
        f"w: {{type: sweep, trial: ./train.yml, inputs: {{{DATA}, epochs: 5}}, {SWEEP}, "
        "sampling_algorithm: {type: random, seed: 1}, "
        "early_termination: {type: bandit, slack_factor: 0.1, evaluation_interval: 2}}"
    ),
    "a step after a sweep": _steps(
        f"w: {{type: sweep, trial: ./train.yml, inputs: {{{DATA}}}, sampling_algorithm: random, "
        f"{SWEEP}}}",
        "s: {type: command, component: ./score.yml, inputs: "
        "{data: '${{parent.inputs.d}}', model: '${{parent.jobs.w.outputs.model}}'}}",
    ),
    "settings": "type: pipeline\nsettings: {default_compute: azureml:cpu, "
    "default_datastore: azureml:store, continue_on_step_failure: false, force_rerun: true}\n"
    + INPUT
    + "jobs:\n"
    + TRAIN,
    "compute of the pipeline": "type: pipeline\ncompute: azureml:cpu\n" + INPUT + "jobs:\n" + TRAIN,
    "a text of two inputs": HEAD
    + "inputs: {a: x, d: {type: uri_folder, path: ./data}}\njobs:\n"
    + "  i: {command: 'echo ${{inputs.t}}', environment: 'azureml:e:1', "
    + "inputs: {t: 'pre-${{parent.inputs.a}}'}}\n",
}
# Neither takes these.
REFUSED = {
    "a name with a dash": _steps(f"a-b: {{{INLINE}}}"),
    "a name in capitals": _steps(f"A: {{{INLINE}}}"),
    "an unknown key": _steps(f"a: {{{INLINE}, retries: 3}}"),
    "an unknown key of the pipeline": HEAD + f"job: {{}}\njobs:\n  a: {{{INLINE}}}\n",
    "a schedule": HEAD + f"schedule: {{}}\njobs:\n  a: {{{INLINE}}}\n",
    "a step without a command": _steps("a: {type: command}"),
    "no such file": _steps("a: {type: command, component: ./none.yml}"),
    "is_deterministic of a step": _steps(f"a: {{{INLINE}, is_deterministic: false}}"),
    "jobs as a list": HEAD + f"jobs:\n  - {{{INLINE}}}\n",
    "an unknown type": _steps(f"a: {{type: comand, {INLINE}}}"),
    "an input that is null": _steps(_t("inputs: {data: }")),
}
# Azure's client takes these, and leaves it to its service; here they are refused at once.
SOONER = {
    "a cycle": _steps(
        f"a: {{{INLINE}, inputs: {{x: '${{{{parent.jobs.b.outputs.o}}}}'}}, outputs: {{o: }}}}",
        f"b: {{{INLINE}, inputs: {{x: '${{{{parent.jobs.a.outputs.o}}}}'}}, outputs: {{o: }}}}",
    ),
    "a value above its maximum": _steps(_t(f"inputs: {{{DATA}, epochs: 101}}")),
    "a value that is not listed": _steps(_t(f"inputs: {{{DATA}, kind: c}}")),
    "a value of another type": _steps(_t(f"inputs: {{{DATA}, epochs: many}}")),
    "a missing input": _steps("t: {type: command, component: ./train.yml}"),
    "an input of the pipeline that is not there": _steps(
        _t("inputs: {data: '${{parent.inputs.e}}'}")
    ),
}
# Taken here only: a schema says the type.
SUPERSETS = {
    "schema instead of type": "$schema: "
    "https://azuremlschemas.azureedge.net/latest/pipelineJob.schema.json\n"
    + (HEAD + INPUT + "jobs:\n" + TRAIN).removeprefix("type: pipeline\n"),
}
