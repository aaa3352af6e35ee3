"""What clusters answer: Slurm's commands, and the APIs of Kubernetes and Ray. It may have any
length and any shape: others' jobs and nodes are in it, too."""

from __future__ import annotations

import functools
import os
import selectors
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from allranks.errors import EngineError

# Bytes of an answer, more than tens of thousands of nodes have; and seconds for all of it.
LONGEST, PATIENCE = 256 << 20, 60.0
_PIECE = 1 << 16
# What reading an answer raises that is of another shape.
_MISSHAPEN = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)

Engine = TypeVar("Engine", bound=type[Any])


def reads_answers(engine: Engine) -> Engine:
    """An engine that raises EngineError where a cluster's answer is of another shape."""
    for name in ("admit", "submit", "poll", "stop", "check", "hosts"):
        setattr(engine, name, understood(engine.name.capitalize(), getattr(engine, name)))
    return engine


def understood(cluster: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        try:
            return function(*args, **options)
        except _MISSHAPEN as error:
            raise EngineError(
                f"{cluster} answers as it never should: {error!r:.200}",
                hint="check that the compute's options lead to the right cluster",
            ) from error

    return call


def whole(read: Callable[[int], bytes]) -> bytes:
    """A whole answer. Raises EngineError if it is too long, or takes too long."""
    data, until = bytearray(), time.monotonic() + PATIENCE
    while piece := read(_PIECE):
        data += piece
        if len(data) > LONGEST or time.monotonic() > until:
            raise EngineError(f"a cluster's answer does not end: {len(data)} bytes so far")
    return bytes(data)


def output_of(
    argv: Sequence[str], input: str, env: Mapping[str, str], patience: float
) -> subprocess.CompletedProcess[str]:
    """Run a command of a cluster. Raises subprocess.TimeoutExpired, also if its output does not
    end."""
    until, pipe = time.monotonic() + patience, subprocess.PIPE
    output, errors = bytearray(), bytearray()
    with open(os.memfd_create("input"), "w+b") as file, selectors.DefaultSelector() as selector:
        file.write(input.encode(errors="surrogateescape"))
        file.seek(0)
        with subprocess.Popen(
            argv, stdin=file, stdout=pipe, stderr=pipe, env=env, cwd="/"
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            selector.register(process.stdout, selectors.EVENT_READ, output)
            selector.register(process.stderr, selectors.EVENT_READ, errors)
            try:
                while selector.get_map():
                    for key, _ in selector.select(max(0, until - time.monotonic())):
                        piece = os.read(key.fd, _PIECE)
                        key.data.extend(piece)
                        if not piece:
                            selector.unregister(key.fileobj)
                    if time.monotonic() > until or len(output) + len(errors) > LONGEST:
                        raise subprocess.TimeoutExpired(argv, patience)
                process.wait(max(0, until - time.monotonic()))
            except BaseException:
                process.kill()
                raise
    texts = (data.decode(errors="replace") for data in (output, errors))
    return subprocess.CompletedProcess(argv, process.returncode, *texts)
