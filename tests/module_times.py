"""Which modules took most of the time, as the last lines of a run of ten minutes or more."""

from collections import Counter

import pytest

TIMES: Counter[str] = Counter()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    TIMES[report.nodeid.partition("::")[0]] += report.duration


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput") and TIMES.total() > 600:
        print(f"of {TIMES.total():,.0f} s in all workers:")
        print("\n".join(f"{seconds:7,.0f} s  {name}" for name, seconds in TIMES.most_common(25)))
