"""Where W&B and Trackio log to without a word of the user's."""

from pathlib import Path

import pytest

from allranks.agent.launch.tracker_variables import folders, variables
from allranks.core.plan import Container, Task


def test_offline_and_into_the_working_folder(tmp_path: Path) -> None:
    added = variables({"HOME": str(tmp_path)}, tmp_path)
    assert added["WANDB_MODE"] == "offline"
    assert added["TRACKIO_DIR"] == str(tmp_path / "trackio")


@pytest.mark.parametrize("name", ["WANDB_MODE", "WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE"])
def test_what_the_user_says_wins(name: str, tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path), name: "x", "TRACKIO_DIR": "/t"}
    assert not {"WANDB_MODE", "TRACKIO_DIR"} & variables(env, tmp_path).keys()


@pytest.mark.parametrize(
    ("file", "text", "is_offline"),
    [
        (".netrc", "machine api.wandb.ai\n  login user\n", False),
        (".netrc", "machine github.com\n  login user\n", True),
        (".config/wandb/settings", "[default]\nmode = disabled\n", False),
    ],
)
def test_what_wandb_login_and_offline_leave(
    file: str, text: str, is_offline: bool, tmp_path: Path
) -> None:
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(text)
    added = variables({"HOME": str(tmp_path)}, tmp_path / "work")
    assert ("WANDB_MODE" in added) is is_offline


def test_the_folders_to_follow() -> None:
    task = Task("j", "e", "c", record="/r", variables={"WANDB_DIR": "/w", "TRACKIO_DIR": "here"})
    paths = {"outputs.model": "/m", "outputs.far": "s3://b", "state_dir": "/s", "inputs.x": "/x"}
    found = {str(folder) for folder in folders(task, paths, Path("/n/attempt-1"))}
    assert {"/w", "/m", "/s", "/r/artifacts/outputs", "/r/artifacts/logs"} <= found
    assert not {"/x", "here", "s3://b"} & found


def test_in_a_container_only_what_is_mounted_there(tmp_path: Path) -> None:
    """The owner may have something else at the same path."""
    work = tmp_path / "working"
    for folder in (work / "runs", tmp_path / "owner"):
        folder.mkdir(parents=True)
    (work / "link").symlink_to(tmp_path / "owner")
    task = Task("j", "e", "c", record=f"{tmp_path}/record", container=Container("podman", "a"))
    cases = {"runs": work / "runs", "link": work / "link", "owner": tmp_path / "owner"}
    followed = {
        name
        for name, path in cases.items()
        for folder in folders(
            task._replace(variables={"WANDB_DIR": str(path)}), {}, tmp_path / "attempt-1"
        )
        if folder == path.resolve()
    }
    assert followed == {"runs"}


@pytest.mark.parametrize(
    ("settings", "netrc"),
    [
        ("", "default login user password x"),
        ("[default]\nbase_url = https://wandb.corp\n", "machine wandb.corp login user password x"),
        ("[default]\napi_key = x\n", ""),
    ],
)
def test_other_ways_to_log_in(tmp_path: Path, settings: str, netrc: str) -> None:
    (tmp_path / ".config/wandb").mkdir(parents=True)
    (tmp_path / ".config/wandb/settings").write_text(settings)
    (tmp_path / ".netrc").write_text(netrc)
    assert "WANDB_MODE" not in variables({"HOME": str(tmp_path)}, tmp_path / "work")
