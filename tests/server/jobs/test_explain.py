"""What is read of the logs of a failed job."""

from pathlib import Path

from allranks.server.jobs.explain import read


def test_of_a_long_log_only_the_end_is_read(tmp_path: Path):
    log = tmp_path / "log"
    assert read(log) == ((), 0)
    log.write_text("one\ntwo\n")
    assert read(log) == (("one", "two", ""), 0)
    log.write_text("12345\r\n" * 40_000)
    lines, skipped = read(log)
    assert 0 < skipped < 40_000 * 7
    assert skipped + len("\r\n".join(lines)) == 40_000 * 7
