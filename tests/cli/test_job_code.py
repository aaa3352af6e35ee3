"""The code of a job, as the API sends it."""

from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from tests.support import Allranks, answer


@pytest.mark.medium
def test_the_files_of_the_code(shared: Allranks, shared_home: Path, code: Path) -> None:
    names = {"a b.py": b"a\n", "sub/x%y#.bin": b"\0\xff", "sub/empty": b""}
    for name, data in names.items():
        (code / name).parent.mkdir(exist_ok=True)
        (code / name).write_bytes(data)
    (code / "link").symlink_to("a b.py")
    assert shared("run", "--name", "coded", "-q", "--", "true").returncode == 0
    url = answer(shared, "server", "status")["url"]
    token = (shared_home / "token").read_text().strip()
    headers = {"authorization": f"Bearer {token}"}
    with httpx.Client(base_url=f"{url}/api/v1/jobs/", headers=headers) as client:
        found = {each["path"]: each for each in client.get("coded/code").json()}
        assert {name: found[name]["size"] for name in names} == {
            name: len(data) for name, data in names.items()
        }
        assert found["link"]["link"] == "a b.py"
        for name, data in names.items():
            assert client.get(f"coded/code/{quote(name)}").content == data
        for missing in ("coded/code/nosuch", "coded/code/../coded", "nosuch/code"):
            assert client.get(missing).status_code == 404
    with httpx.Client(base_url=url) as stranger:
        assert stranger.get("/api/v1/jobs/coded/code").status_code == 401
