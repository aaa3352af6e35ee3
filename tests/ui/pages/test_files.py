"""How the files of a job are listed."""

from __future__ import annotations

from allranks.ui.pages.files import _in_folder


def test_folders_that_are_alone_are_one_row_and_numbers_have_their_order() -> None:
    paths = ["a/b/step_100/w", "a/b/step_20/w", "a/b/step_20/v", "a/b/c.png", "a/b/2.png"]
    files = [{"path": path, "size": 1} for path in [*paths, "a/b/10.png"]]
    own, folders = _in_folder(files, "")
    assert own == []
    assert [(one.path, one.name, one.files, one.size) for one in folders] == [("a/b", "a/b", 6, 6)]
    own, folders = _in_folder(files, "a/b")
    assert [file["path"] for file in own] == ["a/b/2.png", "a/b/10.png", "a/b/c.png"]
    assert [(one.path, one.name) for one in folders] == [
        ("a/b/step_20", "step_20"),
        ("a/b/step_100", "step_100"),
    ]
