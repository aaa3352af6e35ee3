"""Variables with which W&B and Trackio log without a network, to files that the agent follows."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from allranks import folder_trees
from allranks.core.environments import container
from allranks.core.plan import Task

# With one of these the user has decided where W&B logs to.
_CHOSEN = ("WANDB_MODE", "WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE", "WANDB_DISABLED")
_FLUSH = "WANDB__TRANSACTION_LOG_FLUSH_INTERVAL"
# Where users let trackers write.
_FOLDERS = ("WANDB_DIR", "TRACKIO_DIR", "TENSORBOARD_LOGGING_DIR")
# In W&B's settings files.
_DECIDED = re.compile(r"^\s*(mode|disabled|api_key)\s*=", re.M)
_BASE_URL = re.compile(r"^\s*base_url\s*=\s*(\S+)", re.M)
_COLLECTED = ("outputs", "logs", "model", "data", "tensorboard")


def variables(env: Mapping[str, str], work: Path) -> dict[str, str]:
    """What to add to the environment of a rank in the working folder ``work``. W&B is offline where
    nobody has logged in; otherwise its first call would wait for a key. Its own files are then
    written each second instead of every 15."""
    added = {_FLUSH: "1", "TRACKIO_DIR": str(work / "trackio")}
    if not any(env.get(name) for name in _CHOSEN) and not _is_logged_in(env, work):
        added["WANDB_MODE"] = "offline"
    return {name: value for name, value in added.items() if name not in env}


def folders(task: Task, paths: Mapping[str, str], attempt: Path) -> list[Path]:
    """The folders besides the working folder in which ranks write; ``paths`` are those of outputs
    and state, as in `Work`. In a container other folders of the node are not theirs."""
    named = {**task.base, **task.variables}
    own = [named[name] for name in _FOLDERS if named.get(name, "").startswith("/")]
    shared = [f"{task.record}/artifacts/{name}" for name in _COLLECTED]
    outputs = [path for key, path in paths.items() if key.startswith("outputs.")]
    states = [paths[key] for key in ("state_dir", "instance_state_dir") if paths.get(key)]
    paths_of_node = (path for path in (*own, *shared, *outputs, *states) if path.startswith("/"))
    roots = container.visible(task, str(attempt))
    return [real for path in paths_of_node if (real := folder_trees.resolved(path, roots))]


def _is_logged_in(env: Mapping[str, str], work: Path) -> bool:
    """Whether `wandb login`, `wandb offline` or the like left a file that says what to do."""
    home = Path(env.get("HOME") or os.path.expanduser("~"))
    config = Path(env.get("WANDB_CONFIG_DIR") or home / ".config/wandb")
    settings = _text(config / "settings") + "\n" + _text(work / "wandb/settings")
    if _DECIDED.search(settings):
        return True
    there = _BASE_URL.search(settings)
    address = env.get("WANDB_BASE_URL") or (there[1] if there else "https://api.wandb.ai")
    netrcs = [Path(env["NETRC"])] if env.get("NETRC") else [home / ".netrc", home / "_netrc"]
    accounts = [text for text in map(_text, netrcs) if text]
    if not accounts:
        return False
    host = re.escape(urlsplit(address).hostname or "")
    entry = re.compile(rf"\bmachine\s+{host}\b|^\s*default\b", re.M)
    return any(map(entry.search, accounts))


def _text(file: Path) -> str:
    with contextlib.suppress(OSError):
        return file.read_text(errors="replace")
    return ""
