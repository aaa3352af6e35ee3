"""A datastore: a named location of data with its credentials. The keys are Azure ML's where it has
one.

Azure's are ``azure_blob`` and ``azure_data_lake_gen2``; ``file``, ``s3``, ``gcs`` and ``https``
are ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError

from allranks.errors import Problem, SpecError
from allranks.spec.fields.base import Part
from allranks.spec.fields.problems import placed, problems
from allranks.spec.fields.scalars import Name, Text, Texts, Wrong
from allranks.spec.job_parts import snake


def _kind(value: object) -> object:
    snaked = snake(value)
    if isinstance(snaked, str) and snaked in _REFUSED:
        raise Wrong(f"datastores of the type `{snaked}` do not open here", _REFUSED[snaked])
    return _ALSO.get(snaked, snaked) if isinstance(snaked, str) else snaked


# Spellings of Azure's tools and users.
_ALSO = {
    "azureblob": "azure_blob",
    "blob": "azure_blob",
    "azuredatalakegen2": "azure_data_lake_gen2",
    "azure_datalake_gen2": "azure_data_lake_gen2",
    "adls_gen2": "azure_data_lake_gen2",
    "gs": "gcs",
    "http": "https",
}
# Azure's that cannot be opened here.
_REFUSED = {
    "azure_file": "mount the share on the nodes, and create a datastore of the type `file`",
    "azure_data_lake_gen1": "Azure has retired it",
    "one_lake": "copy the data to a store that is listed",
}
_AZURE = ("azure_blob", "azure_data_lake_gen2")
Kind = Annotated[
    Literal["file", "s3", "gcs", "https", "azure_blob", "azure_data_lake_gen2"],
    BeforeValidator(_kind),
]
# Required keys, optional keys and credentials of each kind.
_WANTS: Mapping[str, tuple[str, ...]] = {
    "file": ("path",),
    "s3": ("bucket",),
    "gcs": ("bucket",),
    "https": ("url",),
    "azure_blob": ("account_name", "container_name"),
    "azure_data_lake_gen2": ("account_name", "filesystem"),
}
_MAY: Mapping[str, tuple[str, ...]] = {
    "file": (),
    "s3": ("prefix", "endpoint", "region"),
    "gcs": ("prefix", "endpoint"),
    "https": (),
    "azure_blob": ("prefix", "endpoint", "protocol"),
    "azure_data_lake_gen2": ("prefix", "endpoint", "protocol"),
}
_OF_AZURE = ("account_key", "sas_token", "tenant_id", "client_id", "client_secret")
CREDENTIALS: Mapping[str, tuple[str, ...]] = {
    "file": (),
    "s3": ("access_key_id", "secret_access_key", "session_token"),
    "gcs": ("service_account_key",),
    "https": ("username", "password", "token"),
    "azure_blob": _OF_AZURE,
    "azure_data_lake_gen2": _OF_AZURE,
}
# Credentials that only work together.
_TOGETHER = (
    ("access_key_id", "secret_access_key"),
    ("tenant_id", "client_id", "client_secret"),
)


class Datastore(Part):
    """``endpoint`` is the URL of a store other than the provider's own: MinIO, Ceph, Azurite.
    ``prefix`` is the beginning of all paths in it."""

    name: Name
    type: Kind
    description: Text | None = None
    tags: Texts = Field(default_factory=dict)
    path: Text | None = None
    bucket: Text | None = None
    prefix: Text | None = None
    endpoint: Text | None = None
    region: Text | None = None
    url: Text | None = None
    account_name: Text | None = None
    container_name: Text | None = None
    filesystem: Text | None = None
    protocol: Text | None = None


def parse(
    data: Mapping[str, Any], lines: Mapping[str, int] | None = None, file: str | None = None
) -> tuple[Datastore, dict[str, str] | None]:
    """The datastore in ``data`` and its credentials, or None without credentials.

    Raises one SpecError with all problems.
    """
    spec = {k: v for k, v in data.items() if v is not None and k not in ("$schema", "credentials")}
    wrong: list[Problem] = []
    made = None
    try:
        made = Datastore.model_validate(spec)
    except ValidationError as error:
        wrong += problems(error, spec, {"": (Datastore,)})
    credentials: dict[str, str] | None = None
    if made is not None:
        wrong += _of_its_kind(made)
        try:
            if data.get("credentials") is not None:
                credentials = _credentials(made.type, data["credentials"])
        except Wrong as error:
            wrong.append(Problem(str(error), "credentials", hint=error.hint))
    if wrong or made is None:
        raise SpecError([placed(problem, lines or {}) for problem in wrong], file=file)
    return made, credentials


def _of_its_kind(made: Datastore) -> list[Problem]:
    wrong = []
    wants, may = _WANTS[made.type], _MAY[made.type]
    for key in wants:
        if not getattr(made, key):
            hint = f"--{key.replace('_', '-')} …, or `{key}: …` in a file"
            message = f"is required for a datastore of type `{made.type}`"
            wrong.append(Problem(message, key, hint=hint))
    for key in {key for keys in (*_WANTS.values(), *_MAY.values()) for key in keys}:
        if getattr(made, key) is not None and key not in (*wants, *may):
            hint = f"its keys are {', '.join(f'`{name}`' for name in (*wants, *may))}"
            wrong.append(Problem(f"not a key of a datastore of type `{made.type}`", key, hint=hint))
    if made.type == "file" and made.path and not made.path.startswith("/"):
        wrong.append(Problem(f"{made.path!r} is not an absolute path", "path", hint="as in /data"))
    for key in ("endpoint", "url"):
        value = getattr(made, key)
        if value and not value.startswith(("http://", "https://")) and made.type not in _AZURE:
            wrong.append(Problem(f"{value!r} is not a URL", key, hint="as in https://HOST:PORT"))
        elif value and ("?" in value or "@" in value):
            hint = "put credentials into `credentials`"
            wrong.append(Problem("the URL must not contain a password or a query", key, hint=hint))
    return wrong


def _credentials(kind: str, credentials: Any) -> dict[str, str]:
    allowed = CREDENTIALS[kind]
    if not isinstance(credentials, Mapping):
        raise Wrong("must be a mapping", f"below it: {', '.join(allowed)}")
    for name, value in credentials.items():
        if name not in allowed:
            hint = f"choose from {', '.join(f'`{key}`' for key in allowed)}" if allowed else "none"
            raise Wrong(f"`{name}` is not a credential of a datastore of type `{kind}`", hint)
        if not isinstance(value, str) or not value or "\n" in value.strip():
            if name == "service_account_key" and isinstance(value, str) and value:
                continue  # JSON of several lines
            raise Wrong(f"`{name}` must be a text of one line", "put it between quotes")
    for several in _TOGETHER:
        missing = [name for name in several if name not in credentials]
        if 0 < len(missing) < len(several):
            all_ = " and ".join(f"`{name}`" for name in several)
            raise Wrong(f"`{missing[0]}` is missing", f"{all_} go together")
    return {name: str(value).strip() for name, value in credentials.items()}
