"""Which variables of a shell a job lacks, and which it is given by default."""

import pytest

from allranks.core.job.shell_variables import dropped, passed_by_default, sentence

READ = (
    "HF_HOME WANDB_PROJECT CUDA_LAUNCH_BLOCKING CUDA_VISIBLE_DEVICES NCCL_DEBUG OMP_NUM_THREADS "
    "MKL_NUM_THREADS TORCH_LOGS PYTORCH_CUDA_ALLOC_CONF TF_CPP_MIN_LOG_LEVEL XLA_FLAGS "
    "JAX_PLATFORMS MLFLOW_TRACKING_URI TRANSFORMERS_CACHE AWS_SECRET_ACCESS_KEY AZURE_CLIENT_ID "
    "https_proxy NO_PROXY PYTHONPATH"
)
NOT_READ = (
    "HOME PS1 EDITOR SSH_AUTH_SOCK HFX MY_HF_HOME PYTHONSTARTUP TF_ http_proxy_port OMPX "
    "TF_VAR_x TF_LOG AWS_CA_BUNDLE GRPC_DEFAULT_SSL_ROOTS_FILE_PATH AWS_PAGER AZURE_CONFIG_DIR"
)


@pytest.mark.parametrize("name", READ.split())
def test_what_training_reads_is_missed(name):
    assert dropped({name: "1"}, set()) == [name]
    assert dropped({name: ""}, set()) == []
    assert dropped({name: "1"}, {name}) == []


@pytest.mark.parametrize("name", NOT_READ.split())
def test_other_variables_are_not(name):
    assert dropped({name: "1"}, set()) == []


def test_patterns_pass_variables_but_not_secrets_unless_named_in_full():
    shell = dict.fromkeys(("HF_HOME", "HF_TOKEN", "WANDB_API_KEY", "OMP_X", "ALLRANKS_X"), "v")
    assert [*passed_by_default("HF_*, OMP_X,", shell)] == ["HF_HOME", "OMP_X"]
    assert [*passed_by_default("HF_*,WANDB_API_KEY", shell)] == ["HF_HOME", "WANDB_API_KEY"]
    assert [*passed_by_default("*", shell)] == ["HF_HOME", "OMP_X"]
    assert passed_by_default("", shell) == {}


def test_few_names_are_said():
    assert sentence(["A"], "do") == "A of your shell is not passed to the job; do"
    many = sentence([f"N{i}" for i in range(9)], "do")
    assert many == "N0, N1, N2, N3, N4, N5 and 3 more of your shell are not passed to the job; do"
