"""The images that a job runs in: a container on the nodes, or the nodes' own image. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from allranks.core import amounts
from allranks.core.environments.container import FILE, TRACELESS
from allranks.core.plan import Container
from allranks.errors import Problem, SpecError
from allranks.spec.job import CommandJob
from allranks.spec.job_parts import Environment


def node_image(spec: CommandJob, environment: Environment | None) -> dict[str, Any]:
    """The options of an engine whose nodes run in images, for the job's own image and /dev/shm."""
    options = {}
    if environment is not None and environment.build is not None:
        hint = "build the image elsewhere, push it, and name it: `environment: {image: …}`"
        raise SpecError(
            Problem("this engine does not build Dockerfiles", "environment.build", hint=hint)
        )
    if environment is not None and environment.image is not None:
        options["image"] = environment.image
    if spec.resources.shm_size:
        options["shm_size"] = spec.resources.shm_size
    return options


def container_of(spec: CommandJob, environment: Environment, engine: str) -> Container:
    """What the job's image runs in, under the program that its compute names."""
    kind = "none" if spec.distribution is None else str(spec.distribution.type)
    resources = spec.resources
    if kind == "mpi" and engine in TRACELESS:
        raise SpecError(
            Problem(
                f"mpi jobs do not run under {engine} yet in this version",
                "distribution.type",
                hint="choose podman or docker for the compute; or leave the image out "
                "(--set environment=current, or an environment with packages)",
            )
        )
    where = "resources.docker_args"
    try:
        args = _words(resources.docker_args)
    except ValueError as error:
        hint = "quote as for a shell, or write a list of words"
        raise SpecError(
            Problem(f"cannot be split into arguments: {error}", where, hint=hint)
        ) from None
    for before, word in zip(("", *args), args, strict=False):
        if _OURS.match(word):
            message = "cannot be set: allranks names, starts and ends the container"
            raise SpecError(Problem(f"{word!r} {message}", where, hint="leave it out"))
        if not word.startswith("-") and (not before.startswith("-") or "=" in before):
            # It would be taken for the image.
            hint = "give options and their values, as in: --cap-add=IPC_LOCK --env A=b"
            raise SpecError(Problem(f"{word!r} does not belong to an option", where, hint=hint))
    shm_size = memory_of(resources.shm_size, "resources.shm_size")
    made = Container(engine, environment.image or "", shm_size, args)
    if made.image.endswith(FILE) and not made.image.startswith("/") and "://" not in made.image:
        hint = "use its absolute path, the same on every node"
        raise SpecError(
            Problem("the path of an image file must be absolute", "environment.image", hint=hint)
        )
    if made.image.startswith("/") and engine not in TRACELESS:
        hint = "give the name of one in a registry, or a compute with --container apptainer"
        raise SpecError(
            Problem(f"{engine} does not run image files", "environment.image", hint=hint)
        )
    if (build := environment.build) is None:
        return made
    if engine in TRACELESS:
        hint = f"build it elsewhere and use its name, or use a {FILE} file as the image"
        raise SpecError(
            Problem(f"{engine} does not build Dockerfiles", "environment.build", hint=hint)
        )
    return made._replace(context=build.path, dockerfile=build.dockerfile_path or "Dockerfile")


# Of the words for `run` those by which a container would be lost from sight.
_OURS = re.compile(
    r"--(detach|tty|name|entrypoint|rm|interactive|restart|log-driver|cidfile|pidfile|sig-proxy|"
    r"attach|pull|user|pid|pod)(=|$)|-[ditPq]*[dita]|-u"
)


def _words(arguments: str | Sequence[str] | None) -> tuple[str, ...]:
    """One text is taken apart as a shell would; a list has been already."""
    return tuple(shlex.split(arguments)) if isinstance(arguments, str) else tuple(arguments or ())


def memory_of(value: Any, where: str) -> int | None:
    try:
        return None if value is None else amounts.memory(value)
    except ValueError:
        hint = "a positive number with its unit: 4g, 512m"
        raise SpecError(
            Problem(f"{value!r} is not an amount of memory", where, hint=hint)
        ) from None


def portable(tools: Mapping[str, str], images: bool) -> Mapping[str, str]:
    """The settings of uv and pip; in images without those that name files of the submitter's
    machine, which are not there. A missing file of certificates fails each download."""
    if not images:
        return tools
    return {name: text for name, text in tools.items() if not text.startswith(("/", "~", "file:"))}
