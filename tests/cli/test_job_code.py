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


@pytest.mark.medium
def test_what_a_file_of_secrets_says_is_not_shown(shared: Allranks, code: Path) -> None:
    for number in (1, 2):
        (code / ".env").write_text(f"WANDB_API_KEY=value-{number}\n")
        (code / "a.py").write_text(f"print({number})\n")
        done = shared("run", "--name", f"secret-{number}", "--", "true")
        assert done.returncode == 0
        assert "the code has .env, named as secrets are" in done.stderr
    compared = shared("job", "compare", "secret-1", "secret-2")
    assert "+print(2)" in compared.stdout
    assert "not shown: files of that name hold secrets" in compared.stdout
    assert "value-" not in compared.stdout + compared.stderr
