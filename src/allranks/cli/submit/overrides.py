"""`--set a.b=c` on a job that comes from options instead of a file."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from allranks.cli.output import show

if TYPE_CHECKING:
    from allranks.api.common import Document


def override(options: argparse.Namespace, spec: Document) -> None:
    """Set each of ``options.set`` in the spec, its value read as YAML. Raises UsageError and
    SpecError."""
    from allranks.spec.yaml.load import override_keys  # lazy: YAML takes 60 ms

    override_keys(spec, {}, options.set, typed=True, engines=engines(options.set))
    note_unread(options, spec)


def note_unread(options: argparse.Namespace, spec: Mapping[str, Any]) -> None:
    """Note the inputs that ``options.set`` changes and that no command reads."""
    if options.set and not options.quiet:
        from allranks.spec.yaml.unused_overrides import unread_inputs  # lazy: imports the models

        for note in unread_inputs(spec, options.set):
            show.talk(f"note: {note}")


def engines(overrides: Sequence[str]) -> Sequence[str]:
    """The names of the engines, if an override may contain one."""
    if not any(each.strip().startswith("resources") for each in overrides):
        return ()
    from allranks.engines.registry import KINDS  # lazy: few overrides need it

    return [*KINDS]
