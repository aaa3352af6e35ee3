"""The folder that scoring scripts find in AZUREML_MODEL_DIR. For any Python from 3.7 on."""

from __future__ import annotations

import os
import shutil
import tempfile

TYPE_CHECKING = False  # typing takes milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable


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
        shutil.copytree(source, target, ignore=_without(attempt), copy_function=_link)
    else:
        os.symlink(source, target)
    return folder


def _without(attempt):  # type: (str) -> Callable[[str, list[str]], list[str]]
    """Leaves out the folders of agents, where a model lies in a folder with the home."""
    own = [attempt]
    while len(own) < 4:
        own.append(os.path.dirname(own[-1]))
    return lambda folder, names: [name for name in names if os.path.join(folder, name) in own]


def _link(source, target):  # type: (str, str) -> None
    source = os.path.realpath(source)
    try:
        os.link(source, target)
    except OSError:  # another disk, or a file of another user
        os.symlink(source, target)
