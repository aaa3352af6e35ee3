"""The folder that scoring scripts find in AZUREML_MODEL_DIR. For any Python from 3.7 on."""

from __future__ import annotations

import os
import shutil
import tempfile


def make(model, name):  # type: (str, str) -> str
    """A folder that has the model under the name it was registered with. It is in the attempt's
    folder, and so ends with it."""
    attempt = os.path.dirname(os.environ.get("ALLRANKS_METRICS_FILE", ""))
    folder = tempfile.mkdtemp(prefix="model-", dir=attempt or None)
    source = os.path.abspath(model)
    target = os.path.join(folder, name or os.path.basename(source))
    os.makedirs(os.path.dirname(target), exist_ok=True)  # FOLDER/FILE: a folder's only file
    if os.path.isdir(source):
        # MLflow opens no file of a model that is elsewhere, by its resolved path.
        shutil.copytree(source, target, copy_function=_link)
    else:
        os.symlink(source, target)
    return folder


def _link(source, target):  # type: (str, str) -> None
    source = os.path.realpath(source)
    try:
        os.link(source, target)
    except OSError:  # another disk, or a file of another user
        os.symlink(source, target)
