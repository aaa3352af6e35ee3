"""What a gang's agents are told, by environment, so that they find the server and may speak."""

from __future__ import annotations

from allranks.server.auth.identity import Auth
from allranks.server.http.agents_listener import AgentsListener
from allranks.server.loop import mailbox
from allranks.settings import Clocks, Home
from allranks.store.job_rows import JobRow


class AgentVariables:
    """Called with a job, it gives the environment of its present launch's agents: it holds their
    token, good for that launch alone."""

    def __init__(
        self, home: Home, auth: Auth, door: AgentsListener, clocks: Clocks, url: str
    ) -> None:
        self._home, self._auth, self._door = home, auth, door
        self._clocks, self._url = clocks, url

    def __call__(self, row: JobRow) -> dict[str, str]:
        launch, address = row.record.launch, row.plan.server_address
        found = {
            "ALLRANKS_AGENT_URL": self._where(address, f"{row.name}.{launch}"),
            "ALLRANKS_AGENT_TOKEN": self._auth.agent_token(row.name, launch),
            "ALLRANKS_AGENT_LAUNCH": str(launch),
            "ALLRANKS_AGENT_PATIENCE": str(self._clocks.patience),
        }
        if address and address != mailbox.ADDRESS:
            found["ALLRANKS_AGENT_FINGERPRINT"] = self._door.fingerprint
        return found

    def stands(self, row: JobRow) -> bool:
        """Whether its agents can come in: the door is open where they were told to come."""
        return row.plan.server_address not in self._door.trouble

    def _where(self, address: str, key: str) -> str:
        if address == mailbox.ADDRESS:
            return mailbox.url(self._home, key)
        return self._door.url(address) if address else self._url
