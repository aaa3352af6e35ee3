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
        links = []  # type: list[tuple[str, str]]
        # MLflow opens no file of a model that is elsewhere, by its resolved path.
        ignore = _without(attempt, source, target, links)
        shutil.copytree(source, target, ignore=ignore, copy_function=_link)
        for there, link in links:
            os.symlink(os.path.relpath(there, os.path.dirname(link)), link)
    else:
        os.symlink(source, target)
    return folder


def _without(attempt, source, target, links):
    # type: (str, str, str, list[tuple[str, str]]) -> Callable[[str, list[str]], list[str]]
    """Leaves out the folders of agents, where a model lies in a folder with the home; and links to
    folders that have a copy, which become ``links`` to that: they may lead back."""
    copies = {os.path.realpath(source): target}
    for _ in range(4):
        copies[os.path.realpath(attempt)] = ""
        attempt = os.path.dirname(attempt)

    def left_out(folder, names):  # type: (str, list[str]) -> list[str]
        left = []
        for name in names:
            path = os.path.join(folder, name)
            real, copy = os.path.realpath(path), os.path.join(target, os.path.relpath(path, source))
            if real in copies:
                left.append(name)
                if copies[real]:
                    links.append((copies[real], copy))
            elif os.path.isdir(path):
                copies[real] = copy
        return left

    return left_out


def _link(source, target):  # type: (str, str) -> None
    source = os.path.realpath(source)
    try:
        os.link(source, target)
    except OSError:  # another disk, or a file of another user
        os.symlink(source, target)
