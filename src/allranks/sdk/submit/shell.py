"""What jobs take from the shell of this process."""

from __future__ import annotations

from functools import cached_property

from allranks import shell_limits
from allranks.sdk.connection.find_server import of_another_home
from allranks.sdk.submit.current_environment import current
from allranks.sdk.submit.editable_packages import live_packages
from allranks.snapshot.packages import Package


class Shell:
    """Each is looked up once, for all jobs of a list; ``other_server`` is the server in use, empty
    if it is this home's own."""

    @cached_property
    def variables(self) -> dict[str, str]:
        return current() if self.other_server else {**current(), **shell_limits.read()}

    @cached_property
    def packages(self) -> list[Package]:
        return live_packages(self.variables)

    @cached_property
    def other_server(self) -> str:
        return of_another_home()
