"""Variables of the submitter's shell: which a job is given by default, which it lacks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Set
from fnmatch import fnmatchcase

from allranks.masking import looks_secret

# What frameworks, their libraries, trackers and stores read: the first words of names, and whole
# names. (A regular expression of all takes 1 ms of each submission to compile.)
_PREFIXES = (
    " ACCELERATE AWS AZURE AZUREML CLEARML COMET CUBLAS CUDA CUDNN DEEPSPEED DS GLOO GOOGLE GRPC HF"
    " HOROVOD HUGGINGFACE JAX KERAS KMP MKL MLFLOW NCCL NEPTUNE NUMEXPR NVIDIA OMP OPENBLAS PYTORCH"
    " RAY TF TORCH TORCHDYNAMO TORCHELASTIC TORCHINDUCTOR TRANSFORMERS TRITON UCX WANDB XLA "
)
_WHOLE_NAMES = (
    " http_proxy https_proxy ftp_proxy all_proxy no_proxy HTTP_PROXY HTTPS_PROXY FTP_PROXY"
    " ALL_PROXY NO_PROXY PYTHONPATH PYTHONHASHSEED LD_LIBRARY_PATH LD_PRELOAD "
)
# Terraform's also begin with TF_; those of the clouds' command lines and certificates of this
# machine are no setting of a training.
_OTHER_TOOLS = (
    r"TF_(CLI|VAR|LOG|WORKSPACE|DATA_DIR)(_.*)?"
    r"|(AWS|AZURE|GOOGLE|GRPC)_(CA_BUNDLE|PAGER|VAULT|CLI_.*|EXECUTION_ENV|CONFIG_DIR|EXTENSION_DIR"
    r"|CORE_.*|DEV_.*|HTTP_USER_AGENT|CLOUD_SHELL|DEFAULT_SSL_ROOTS_FILE_PATH)"
)
_NAMED = 6


def is_ours(name: str) -> bool:
    """Whether a variable belongs to allranks or the shell itself, and is never passed to jobs."""
    return name.startswith("ALLRANKS_") or name in ("_", "PWD", "OLDPWD", "SHLVL")


def passed_by_default(patterns: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that comma-separated patterns such as ``HF_*,WANDB_MODE`` name. What looks like
    a secret has to be named in full."""
    globs = [glob.strip() for glob in patterns.split(",") if glob.strip()]
    return {
        name: value
        for name, value in environ.items()
        if not is_ours(name)
        and (name in globs or not looks_secret(name))
        and any(fnmatchcase(name, glob) for glob in globs)
    }


def dropped(environ: Mapping[str, str], passed: Set[str]) -> list[str]:
    """The names of the variables that training reads and a job with ``passed`` does not get."""
    return sorted(
        name
        for name, value in environ.items()
        if value and name not in passed and _is_read_by_training(name)
    )


def _is_read_by_training(name: str) -> bool:
    first, _, rest = name.partition("_")
    if rest and f" {first} " in _PREFIXES:
        return not re.fullmatch(_OTHER_TOOLS, name, re.DOTALL)
    return f" {name} " in _WHOLE_NAMES


def sentence(names: Iterable[str], mend: str) -> str:
    """One line about those that a job does not get; values are never in it."""
    names = list(names)
    shown, more = names[:_NAMED], len(names) - _NAMED
    listed = ", ".join(shown) + (f" and {more} more" if more > 0 else "")
    verb = "is" if len(names) == 1 else "are"
    return f"{listed} of your shell {verb} not passed to the job; {mend}"
