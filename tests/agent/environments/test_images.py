"""What the programs that run containers say of themselves, and what is left of it."""

import pytest

from allranks.agent.environments.images import reason


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["Error: no such object"], "no such object"),
        (["Error response from daemon: pull access denied"], "pull access denied"),
        (["docker: Error response from daemon: gone", "See 'docker run --help'."], "gone"),
        (["\x1b[31mFATAL:   \x1b[0mcould not open image", "\x1b[0m"], "could not open image"),
        (["\x1b[31mERROR  : Requesting capability set\x1b[0m", ""], "Requesting capability set"),
        ([], "it did not say why"),
    ],
)
def test_the_reason_is_the_last_thing_that_is_said(lines: list[str], said: str) -> None:
    assert reason(lines) == said
