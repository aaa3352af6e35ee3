"""`job cp NAME:PATH DEST`: a program in the job's image that is called tar."""

from __future__ import annotations

import io
import random

from allranks.cli.job.copy import Unpacking
from allranks.cli.output import show
from tests.hostile import names
from tests.hostile.harness import Outcome, Place

TRIES = 120


def attempt(chance: random.Random, place: Place) -> Outcome:
    is_folder = chance.random() < 0.8
    base = chance.choice(["out", "base", "ü"])
    prefix = chance.choice([base, "."]) if is_folder else base
    honest: dict[str, bytes] = {}
    if is_folder:
        for number in range(chance.randint(0, 4)):
            honest[f"{prefix}/sub{number % 2}/f{number}"] = chance.randbytes(
                chance.choice([0, 9000])
            )
    else:
        honest[base] = b"content"
    data = names.packed(
        chance, honest, names.hostile_entries(chance, prefix, place, chance.randint(0, 8))
    )
    data, is_intact = names.spoiled(chance, data)
    if chance.random() < 0.25:
        data, is_intact = names.odd_headers(chance) + data, False
    named = chance.choice([base, "other"])
    if chance.random() < 0.3:
        (place.goal / named).mkdir()
    unpacking = Unpacking(io.BytesIO(data), f"job:{base}", place.goal, base, named)
    unpacking.run()
    said = [*unpacking.refused, *unpacking.left_out]
    if unpacking.error is not None:
        said.append(str(unpacking.error))
    beside = {path.name for path in place.goal.iterdir()} - {named}
    assert not beside, f"not asked for: {beside}"
    sent = {path.replace(prefix, named, 1): content for path, content in honest.items()}
    return Outcome(sent if is_intact else {}, "\n".join(map(show.one_line, said)))
