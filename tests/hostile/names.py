"""Names and tars of peers that lie."""

from __future__ import annotations

import io
import random
import tarfile
from collections.abc import Sequence

from tests.hostile.harness import Place

_PARTS = ["a", "b", "deep", "..", ".", "", "ü", "\x1b[2J", "a\nb", "-rf", "\u202e", "n" * 200]


def name(chance: random.Random, base: str, place: Place) -> str:
    """A name, most often one that leads somewhere."""
    return chance.choice(
        [
            lambda: f"{base}/" + "/".join(chance.choices(_PARTS, k=chance.randint(1, 6))),
            lambda: "../" * chance.randint(1, 5) + "outside/secret",
            lambda: str(place.outside / chance.choice(["secret", "new", ".ssh/authorized_keys"])),
            lambda: f"{base}/../" + chance.choice(["x", ".bashrc", "../beside"]),
            lambda: chance.choice([base, ".", "..", "/", "", f"{base}2", "./x", f"./{base}"]),
            lambda: f"{base}/l{chance.randint(0, 2)}/x",
            lambda: f"{base}/" + "d/" * chance.choice([3, 150, 600]) + "x",
            lambda: f"{base}/" + "n" * chance.choice([255, 256, 5000]),
        ]
    )()


def target(chance: random.Random, base: str, place: Place) -> str:
    """Where a link leads."""
    return chance.choice(
        [
            lambda: str(place.outside / chance.choice(["", "secret", ".ssh"])),
            lambda: "../" * chance.randint(1, 4) + chance.choice(["outside", "outside/secret", ""]),
            lambda: "/".join(chance.choices(["l0", "l1", "l2", "..", "d"], k=chance.randint(1, 9))),
            lambda: f"{base}/" + chance.choice(["a", "l0", "../../outside/secret"]),
            lambda: chance.choice(["a", ".", "", "x" * 5000, "/proc/self/fd/0", "l0"]),
        ]
    )()


def chain(base: str, place: Place) -> list[tarfile.TarInfo]:
    """CVE-2025-4517: links that are inside by their text, as long as their target is too long for
    the kernel, and then another that leads up through them."""
    deep, made = "d" * 247, []
    path = base
    for letter in "abcdefghijklmnop":
        made.append(_entry(f"{path}/{deep}", tarfile.DIRTYPE))
        made.append(_entry(f"{path}/{letter}", tarfile.SYMTYPE, deep))
        path = f"{path}/{deep}"
    short = "/".join("abcdefghijklmnop")
    made.append(_entry(f"{base}/{short}/" + "l" * 254, tarfile.SYMTYPE, "../" * 16))
    made.append(_entry(f"{base}/escape", tarfile.SYMTYPE, f"{short}/{'l' * 254}/../../outside"))
    made.append(_entry(f"{base}/hard", tarfile.LNKTYPE, f"{base}/escape/secret"))
    made.append(_entry(f"{base}/hard"))
    made.append(_entry(f"{base}/escape/new"))
    return made


def _entry(path: str, kind: bytes = tarfile.REGTYPE, goal: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(path)
    made.type, made.linkname = kind, goal
    return made


_KINDS = [
    *[tarfile.REGTYPE] * 6,
    *[tarfile.SYMTYPE] * 4,
    *[tarfile.LNKTYPE] * 3,
    *[tarfile.DIRTYPE] * 2,
    tarfile.FIFOTYPE,
    tarfile.CHRTYPE,
    tarfile.CONTTYPE,
]


def hostile_entries(
    chance: random.Random, base: str, place: Place, count: int
) -> list[tarfile.TarInfo]:
    """Entries of every kind."""
    made = list[tarfile.TarInfo]()
    if chance.random() < 0.1:
        made += chain(base, place)
    for _ in range(count):
        kind = chance.choice(_KINDS)
        path = name(chance, base, place)
        if kind == tarfile.SYMTYPE and chance.random() < 0.6:
            path = f"{base}/l{chance.randint(0, 2)}"
        info = _entry(path, kind, target(chance, base, place) if kind in b"12" else "")
        info.mode = chance.choice([0o644, 0o7777, 0, 0o4755])
        info.mtime = chance.choice([0, 1e9, -(2.0**40), 2.0**60])
        if kind in (tarfile.REGTYPE, tarfile.CONTTYPE):
            info.size = chance.choice([0, 1, 511, 513, 5000])
        made.append(info)
    return made


def packed(
    chance: random.Random, honest: dict[str, bytes], hostile: Sequence[tarfile.TarInfo]
) -> bytes:
    """A tar with the honest files, hostile entries between them."""
    out = io.BytesIO()
    formats = [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT]
    with tarfile.open(
        fileobj=out, mode="w|", format=chance.choice(formats), errors="surrogateescape"
    ) as tar:
        mixed: list[tarfile.TarInfo | str] = [*honest, *hostile]
        if chance.random() < 0.7:
            chance.shuffle(mixed)
        for each in mixed:
            if isinstance(each, str):
                info = _entry(each)
                info.size = len(honest[each])
                tar.addfile(info, io.BytesIO(honest[each]))
                continue
            try:
                tar.addfile(each, io.BytesIO(chance.randbytes(each.size)))
            except (ValueError, UnicodeError, OverflowError):
                continue  # no tar can say that
    return out.getvalue()


def pax(records: bytes) -> bytes:
    """A file with that PAX header, whose text may be anything."""
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, len(records)
    body = records + b"\0" * (-len(records) % 512)
    return info.tobuf(tarfile.USTAR_FORMAT) + body + tarfile.TarInfo("base/x").tobuf()


def odd_headers(chance: random.Random) -> bytes:
    """Headers on which readers spend time or memory."""
    return chance.choice(
        [
            lambda: pax(b"1" * 900_000),  # CVE-2024-6232
            lambda: pax(b"9" * 255 + b" " + b"1" * 100_000),
            lambda: pax(b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n") + b"n\n" * 1_500_000,
            lambda: pax(b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n") + b"z" * 3_000_000,
            lambda: pax(b"30 GNU.sparse.size=%d\n" % 2**62),
            lambda: pax(b"25 size=99999999999999999\n"),
            lambda: pax(b"20 path=\xff\xfe/../..\n"),
            lambda: b"".join(pax(b"12 a=bcdefg\n")[:1024] for _ in range(3000)),
            lambda: chance.randbytes(20_000),
        ]
    )()


def spoiled(chance: random.Random, data: bytes) -> tuple[bytes, bool]:
    """The same, or with an error; whether it is still what was sent."""
    roll = chance.random()
    if roll < 0.5 or not data:
        return data, True
    if roll < 0.7:
        return data[: chance.randrange(len(data))], False
    spoilt = bytearray(data)
    for _ in range(chance.choice([1, 4, 60])):
        spoilt[chance.randrange(len(spoilt))] = chance.randrange(256)
    return bytes(spoilt), False
