"""What a gang's agents are told, by environment, so that they find the server and may speak."""

from __future__ import annotations

from allranks.server.auth import Auth
from allranks.server.door import Door
from allranks.settings import Clocks
from allranks.store.records import JobRow


class Invitation:
    """Called with a job, it gives the environment of its present launch's agents: it holds their
    token, good for that launch alone."""

    def __init__(self, auth: Auth, door: Door, clocks: Clocks, url: str) -> None:
        self._auth, self._door, self._clocks, self._url = auth, door, clocks, url

    def __call__(self, row: JobRow) -> dict[str, str]:
        launch, address = row.record.launch, row.plan.server_address
        found = {
            "ALLRANKS_AGENT_URL": self._door.url(address) if address else self._url,
            "ALLRANKS_AGENT_TOKEN": self._auth.agent_token(row.name, launch),
            "ALLRANKS_AGENT_LAUNCH": str(launch),
            "ALLRANKS_AGENT_PATIENCE": str(self._clocks.patience),
        }
        if address:
            found["ALLRANKS_AGENT_FINGERPRINT"] = self._door.fingerprint
        return found
