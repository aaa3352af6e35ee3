"""Environment variables by which a gang's agents find the server and authenticate."""

from __future__ import annotations

from allranks.engines.base import OF
from allranks.server.auth.identity import Auth
from allranks.server.auth.roles import OWNER
from allranks.server.http.agents_listener import AgentsListener
from allranks.server.jobs.view import submitter
from allranks.server.loop import mailbox
from allranks.settings import Clocks, Home
from allranks.store.jobs.job_rows import JobRow


class AgentVariables:
    """Call it with a job to get the environment variables of its agents. Their token is valid for
    the job's current launch only."""

    def __init__(
        self, home: Home, auth: Auth, listener: AgentsListener, clocks: Clocks, url: str
    ) -> None:
        self._home, self._auth, self._listener = home, auth, listener
        self._clocks, self._url = clocks, url

    def __call__(self, row: JobRow) -> dict[str, str]:
        launch, address = row.record.launch, row.plan.server_address
        variables = {
            "ALLRANKS_AGENT_URL": self._server_url(address, f"{row.name}.{launch}"),
            "ALLRANKS_AGENT_TOKEN": self._auth.agent_token(row.name, launch),
            "ALLRANKS_AGENT_LAUNCH": str(launch),
            "ALLRANKS_AGENT_PATIENCE": str(self._clocks.patience),
        }
        if (by := submitter(row.spec)) != OWNER.name:
            variables[OF] = by
        if address and address != mailbox.ADDRESS:
            variables["ALLRANKS_AGENT_FINGERPRINT"] = self._listener.fingerprint
        return variables

    def reachable(self, row: JobRow) -> bool:
        """Whether the agents' listener is open at the address the job's agents use."""
        return row.plan.server_address not in self._listener.trouble

    def _server_url(self, address: str, key: str) -> str:
        if address == mailbox.ADDRESS:
            return mailbox.url(self._home, key)
        return self._listener.url(address) if address else self._url
