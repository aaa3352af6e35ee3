"""What a job wrote for its metrics leads nowhere, ends nothing and loses no point in silence."""

import random
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.hostile import job_files


@pytest.mark.medium
def test_files_of_a_hostile_job(tmp_path: Path):
    failed = []
    for number in range(job_files.TRIES):
        place = SimpleNamespace(
            goal=tmp_path / str(number) / "goal", outside=tmp_path / str(number) / "outside"
        )
        place.goal.mkdir(parents=True)
        place.outside.mkdir()
        (place.outside / "secret").write_bytes(job_files.SECRET)
        before = time.process_time()
        try:
            job_files.attempt(random.Random(f"allranks 20261128 {number}"), place)
            assert time.process_time() - before < 5, "too much CPU time"
            assert [path.name for path in place.outside.iterdir()] == ["secret"]
            assert (place.outside / "secret").read_bytes() == job_files.SECRET
        except Exception as error:
            failed.append(f"{number}: {type(error).__name__}: {str(error)[:400]}")

        shutil.rmtree(place.goal.parent)
    assert not failed, "\n".join(failed)
