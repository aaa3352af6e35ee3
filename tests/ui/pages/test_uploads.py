"""Files that browsers send."""

import io
from pathlib import Path

import pytest
from starlette.datastructures import UploadFile

from allranks.errors import UsageError
from allranks.ui.pages.uploads import written


@pytest.mark.parametrize("names", [("a", "a"), ("a", "a/b"), ("b/a", "b"), ("x" * 300,), ("../a",)])
def test_names_that_cannot_be(tmp_path: Path, names: tuple[str, ...]):
    files = [UploadFile(io.BytesIO(b"x"), filename=name) for name in names]
    with pytest.raises(UsageError):
        written(tmp_path, files)
