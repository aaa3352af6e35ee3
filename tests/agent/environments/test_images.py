"""Messages of container engines."""

import pytest

from allranks.agent.environments.images import reason


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["Error: no such object"], "no such object"),
        (["Error response from daemon: pull access denied"], "pull access denied"),
        (["docker: Error response from daemon: gone", "See 'docker run --help'."], "gone"),
        (["\x1b[31mFATAL:   \x1b[0mcould not open image", "\x1b[0m"], "could not open image"),
        (["\x1b[31mERROR  : Requesting capability set\x1b[0m", ""], "Requesting capability set"),
        ([], "no error message"),
    ],
)
def test_reason(lines: list[str], message: str) -> None:
    assert reason(lines) == message
