"""The names of ``azure.ai.ml.constants`` that training programs use, with the same values."""

from __future__ import annotations

from typing import Final


class AssetTypes:
    """What an input, an output, a data asset or a model is."""

    URI_FILE: Final = "uri_file"
    URI_FOLDER: Final = "uri_folder"
    MLTABLE: Final = "mltable"
    MLFLOW_MODEL: Final = "mlflow_model"
    TRITON_MODEL: Final = "triton_model"
    CUSTOM_MODEL: Final = "custom_model"


class InputOutputModes:
    """How a job reads an input or writes an output."""

    MOUNT: Final = "mount"
    DOWNLOAD: Final = "download"
    UPLOAD: Final = "upload"
    RO_MOUNT: Final = "ro_mount"
    RW_MOUNT: Final = "rw_mount"
    EVAL_MOUNT: Final = "eval_mount"
    EVAL_DOWNLOAD: Final = "eval_download"
    DIRECT: Final = "direct"


class BatchDeploymentOutputAction:
    """What a batch deployment keeps of what its scoring script returns."""

    APPEND_ROW: Final = "append_row"
    SUMMARY_ONLY: Final = "summary_only"
