"""The services that routes use, and the arguments that many routes have."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

from starlette.requests import Request

from allranks.core.data.upload_manifest import all_digests_in
from allranks.events import Kind
from allranks.server.arguments import BODY, Given
from allranks.server.assets.components import Components
from allranks.server.assets.datastores import Datastores
from allranks.server.assets.environments import Environments
from allranks.server.assets.input_turns import InputTurns
from allranks.server.assets.node_files import NodeFiles
from allranks.server.assets.planning_assets import PlanningAssets
from allranks.server.assets.state_folders import States
from allranks.server.assets.working_folders import WorkingFolders
from allranks.server.auth.identity import Auth
from allranks.server.clusters.clusters import Clusters
from allranks.server.http.agents_listener import AgentsListener
from allranks.server.http.answer_cache import AnswerCache
from allranks.server.http.host_header_check import HostNames
from allranks.server.http.public_listener import PublicListener
from allranks.server.jobs.register_model import Models
from allranks.server.loop.channels import Channels
from allranks.server.loop.event_batches import EventBatches
from allranks.server.loop.hang_watch import Hangs
from allranks.server.loop.heartbeats import Heartbeats
from allranks.server.loop.live_views import LiveViews
from allranks.server.loop.loops import Loops
from allranks.server.loop.profiles import Profiles
from allranks.server.loop.slow_ranks import SlowRanks
from allranks.server.loop.stacks import Stacks
from allranks.server.loop.subscriptions import Subscriptions
from allranks.server.loop.wakeups import Wakeups
from allranks.server.mlflow.tracking import Tracking
from allranks.server.sessions.engine import SessionEngine
from allranks.settings import Clocks, Home
from allranks.statuses import TERMINAL
from allranks.store.assets import Assets
from allranks.store.batch import BatchEndpoints
from allranks.store.computes import Computes
from allranks.store.endpoints import Endpoints
from allranks.store.files.blobs import Blobs
from allranks.store.files.contents import Contents
from allranks.store.files.receiver import BlobReceiver
from allranks.store.files.uploads import Uploads
from allranks.store.jobs.annotations import Annotations
from allranks.store.jobs.children import Children
from allranks.store.jobs.job_rows import snapshots
from allranks.store.jobs.records import Records
from allranks.store.jobs.step_results import StepResults
from allranks.store.key_values import Settings
from allranks.store.metric_points import Points
from allranks.store.schedules import Schedules


class Services(NamedTuple):
    """Everything a route may need; created once by the app.

    ``admission_lock`` is held while a job or a model is created, and while garbage collection
    removes one thing: neither sees the other half done. ``gc_lock`` is held during a whole garbage
    collection. ``tracking`` is None if MLflow is not installed. ``home_mark``: the file by
    which nodes know the home, None if it cannot be written.
    """

    home: Home
    home_mark: str | None
    clocks: Clocks
    records: Records
    children: Children
    step_results: StepResults
    contents: Contents
    blobs: Blobs
    incoming: BlobReceiver
    uploads: Uploads
    computes: Computes
    clusters: Clusters
    assets: Assets
    environments: Environments
    components: Components
    data: Assets
    datastores: Datastores
    points: Points
    models: Models
    auth: Auth
    wakeups: Wakeups
    subscriptions: Subscriptions
    heartbeats: Heartbeats
    states: States
    node_files: NodeFiles
    input_turns: InputTurns
    working_folders: WorkingFolders
    stacks: Stacks
    profiles: Profiles
    channels: Channels
    sessions: SessionEngine
    annotations: Annotations
    settings: Settings
    schedules: Schedules
    endpoints: Endpoints
    batch: BatchEndpoints
    hangs: Hangs
    slow_ranks: SlowRanks
    live_views: LiveViews
    rank_answers: AnswerCache
    agents_listener: AgentsListener
    public_listener: PublicListener
    host_names: HostNames
    tracking: Tracking | None
    loops: Loops
    event_batches: EventBatches
    admission_lock: threading.Lock
    gc_lock: threading.Lock

    def cancel(self, name: str, force: bool = False, why: str = "") -> None:
        """Cancel a job, unless it has ended or is canceled as hard already. Raises NotFound."""
        row = self.records.get(name)
        record = row.record
        if record.status in TERMINAL or (record.canceled and record.given_up >= force):
            return
        data = ({"force": True} if force else {}) | ({"why": why} if why else {})
        self.records.append(name, [row.event(Kind.CANCEL_ASKED, data=data)])
        self.loops.wake(name)

    def planning(self, environments: Environments | None = None) -> PlanningAssets:
        """What jobs are planned with, by default with all of its environments."""
        return PlanningAssets(
            self.home,
            self.clusters,
            environments or self.environments,
            self.datastores,
            self.components,
            self.records.answering,
        )

    def require_unchanged(self, sources: Sequence[str | None]) -> None:
        """Raise MissingData if data or models at these paths are not what was uploaded or
        registered."""
        self.uploads.require_unchanged(sources)
        self.models.versions.require_unchanged(sources)

    def kept_codes(self) -> set[str]:
        """The digests of the code of components, batch deployments and schedules."""
        submissions = self._submissions()
        codes = {
            each for made in submissions for each in (made.get("code"), *snapshots(made["spec"]))
        }
        codes |= {*snapshots(self.batch.components())}
        return self.components.codes() | {code for code in codes if code}

    def kept_uploads(self) -> set[str]:
        """The digests of the uploads of data assets and schedules."""
        assets = [row.spec.get("path") for row in self.data.versions()]
        return {*all_digests_in([assets, self._submissions(), self.batch.components()])}

    def _submissions(self) -> list[dict[str, Any]]:
        """The jobs that are yet to be submitted: of schedules and deployments."""
        rows = self.endpoints.deployments()
        before = [row.previous.submission for row in rows if row.previous]
        scheduled = [row.submission for row in self.schedules.list()]
        return [*scheduled, *(row.submission for row in rows), *before]

    def __hash__(self) -> int:
        return id(self)


def services(request: Request) -> Services:
    value: Services = request.app.state.services
    return value


def _connection(request: Request) -> Request:
    return request


ServicesDep = Annotated[Services, Given(services)]
# The request itself, to notice that its client has gone.
Connection = Annotated[Request, Given(_connection)]
JsonBody = Annotated[dict[str, Any], BODY]
