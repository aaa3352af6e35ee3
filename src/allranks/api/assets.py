"""Assets: environments, components, data, datastores, models and states."""

from __future__ import annotations

from typing import NotRequired

from typing_extensions import TypedDict

from allranks.api.common import Document, Packed
from allranks.api.jobs import EnvironmentOfJob


class AssetVersion(TypedDict):
    """What every version of an asset has. ``created_at`` is None for those that ship."""

    name: str
    version: str
    labels: list[str]
    created_at: str | None
    description: NotRequired[str]
    tags: NotRequired[dict[str, str]]


class Created(TypedDict):
    """``created`` is False for a version that existed already. Its other keys are those of the
    version."""

    created: bool


# ---------------------------------------------------------------- environments


class BuildAnswer(TypedDict, total=False):
    path: str
    dockerfile_path: str
    without_containers: Document


class EnvironmentAnswer(AssetVersion):
    """A version of an environment: the keys of its definition, and whether it ships."""

    image: NotRequired[str]
    conda_file: NotRequired[str | Document]
    build: NotRequired[BuildAnswer]
    os_type: NotRequired[str]
    datastore: NotRequired[str]
    inference_config: NotRequired[Document]
    pip: NotRequired[list[str]]
    requirements: NotRequired[str]
    constraints: NotRequired[list[str]]
    python: NotRequired[str]
    torch_backend: NotRequired[str]
    allow_builds: NotRequired[bool]
    nearest_python: NotRequired[bool]
    curated: bool


class CreatedEnvironment(EnvironmentAnswer, Created):
    pass


class EnvironmentMap(TypedDict):
    """What stands for environments and packages; ``own`` is the part that this home configured."""

    map: dict[str, str]
    own: dict[str, str]


class RecipeAnswer(TypedDict):
    """``name`` is the environment's, if it has one, ``recipe`` a `core.plan.Recipe`, ``uv`` the
    program that builds it, ``environments`` the folder of virtual environments."""

    name: str
    recipe: Packed
    uv: str
    environments: str


# ---------------------------------------------------------------- components


class ComponentAnswer(AssetVersion):
    """A version of a component: the keys of its file, most of them free of form. ``snapshot`` is
    the digest of its code."""

    type: str
    display_name: NotRequired[str]
    properties: NotRequired[dict[str, str]]
    inputs: NotRequired[dict[str, Document]]
    outputs: NotRequired[dict[str, Document]]
    is_deterministic: NotRequired[bool]
    command: NotRequired[str]
    code: NotRequired[str]
    additional_includes: NotRequired[list[str]]
    snapshot: NotRequired[str]
    environment: NotRequired[str | Document]
    environment_variables: NotRequired[dict[str, str]]
    distribution: NotRequired[Document]
    resources: NotRequired[Document]
    limits: NotRequired[Document]
    metrics: NotRequired[Document]
    retry: NotRequired[Document]
    keep_work: NotRequired[str]
    hang_timeout: NotRequired[float]
    flight_recorder: NotRequired[bool]
    on_failure: NotRequired[Document]
    warm: NotRequired[list[str]]
    # Of a pipeline.
    jobs: NotRequired[dict[str, Document]]
    settings: NotRequired[Document]
    # Of a parallel component.
    task: NotRequired[Document]
    input_data: NotRequired[str]
    mini_batch_size: NotRequired[int | str]
    mini_batch_error_threshold: NotRequired[int]
    max_concurrency_per_instance: NotRequired[int]
    retry_settings: NotRequired[Document]
    logging_level: NotRequired[str]


class CreatedComponent(ComponentAnswer, Created):
    pass


# ---------------------------------------------------------------- data


class DataAnswer(AssetVersion):
    """A version of a data asset. ``job`` and ``output`` name what created it."""

    type: str
    path: str
    properties: NotRequired[dict[str, str]]
    job: NotRequired[str]
    output: NotRequired[str]


class CreatedData(DataAnswer, Created):
    pass


class DatastoreAnswer(TypedDict):
    """A datastore. ``uri`` is its root, ``credentials`` are their names; ``default``: uploads go
    there."""

    name: str
    type: str
    description: NotRequired[str]
    tags: NotRequired[dict[str, str]]
    path: NotRequired[str]
    bucket: NotRequired[str]
    prefix: NotRequired[str]
    endpoint: NotRequired[str]
    region: NotRequired[str]
    url: NotRequired[str]
    account_name: NotRequired[str]
    container_name: NotRequired[str]
    filesystem: NotRequired[str]
    protocol: NotRequired[str]
    uri: str
    credentials: list[str]
    default: bool


# ---------------------------------------------------------------- models


class Lineage(TypedDict, total=False):
    """Where a model comes from; keys without a value are absent."""

    experiment: str
    status: str
    attempt: int
    command: str
    code: str
    repository: str
    branch: str
    commit: str
    uncommitted_changes: str
    environment: EnvironmentOfJob
    inputs: Document


class ModelAnswer(AssetVersion):
    """A version of a model. ``digest`` is the hash of its manifest, ``files`` the number of its
    files. ``deployments``: the online ones that answer with it, as `ENDPOINT/NAME`."""

    type: str
    path: NotRequired[str]
    properties: NotRequired[dict[str, str]]
    flavors: NotRequired[Document]
    stage: NotRequired[str]
    files: int
    size: int
    digest: str
    job: NotRequired[str]
    lineage: NotRequired[Lineage]
    deployments: NotRequired[list[str]]


class CreatedModel(ModelAnswer, Created):
    pass


class SentFile(TypedDict):
    """A file of a model that is uploaded, or a link with its ``target``."""

    path: str
    size: int
    sha256: str
    target: NotRequired[str]


class ModelFile(SentFile):
    """``mtime_ns`` is that of the stored file, 0 if it is missing."""

    mtime_ns: int


# ---------------------------------------------------------------- states


class StateAnswer(TypedDict):
    """A state folder. ``own``: it belongs to the job of its name; ``held_by``: the job that may
    write it now."""

    name: str
    own: bool
    version: int | None
    made_at: str | None
    held_by: str | None
    files: int
    size: int


class StateVersion(TypedDict):
    """``torn`` are files that were being written when a rank was killed."""

    version: int
    made_at: str
    written_at: str | None
    job: str | None
    attempt: int | None
    why: str
    torn: list[str]
    files: int
    size: int


class ShownState(StateAnswer):
    """With its versions, the newest first."""

    versions: list[StateVersion]


class StateEntry(TypedDict):
    """A file, folder or link; only a link has a ``target``, only a file the keys after it.
    ``mtime_ns`` is that of the stored content, 0 if it is missing; ``written_ns`` that which the
    file or folder had where it was written."""

    path: str
    what: str
    target: NotRequired[str]
    size: NotRequired[int]
    sha256: NotRequired[str]
    mtime_ns: NotRequired[int]
    written_ns: NotRequired[int]


# ---------------------------------------------------------------- uploads


class PartAnswer(TypedDict):
    """How much of a blob is here, None if all is; and the bytes that its disk has left. ``alike``:
    a complete blob has the size and the sample that were named."""

    size: int | None
    free: int
    alike: bool


class WrittenPart(TypedDict):
    """``complete``: the blob is here, and its content matches."""

    complete: bool


class UploadFolder(TypedDict):
    """The path of a home's uploads in a datastore."""

    folder: str


class UploadAnswer(TypedDict):
    """Uploaded data: its address as an input, and how much it is. ``left``: bytes that are still to
    be put into the datastore; ask again."""

    path: str
    files: int
    size: int
    left: int


class Challenge(TypedDict):
    """What a client hashes to prove that the server sees its data: ``ranges`` are file, offset and
    length. ``sealed`` belongs to the answer."""

    nonce: str
    ranges: list[tuple[str, int, int]]
    sealed: str


class Proof(TypedDict):
    """The answer to a challenge."""

    nonce: str
    sealed: str
    digest: str
