"""What archives are called, and what is said of those that cannot be unpacked here."""

from __future__ import annotations

from pathlib import Path

from allranks.errors import AllranksError, Unsupported

KINDS = {
    ".tar": "tar",
    **dict.fromkeys((".tar.gz", ".tgz"), "gz"),
    **dict.fromkeys((".tar.bz2", ".tbz2"), "bz2"),
    **dict.fromkeys((".tar.xz", ".txz"), "xz"),
    **dict.fromkeys((".tar.zst", ".tzst"), "zst"),
    ".zip": "zip",
}


def suffix(name: str) -> str | None:
    """The end of an archive's name that says what it is, or None when it is no archive's. One that
    is nothing but that, or dots and that, would name no folder of its own."""
    for each in KINDS:
        if name.lower().endswith(each) and name[: -len(each)] not in ("", ".", ".."):
            return each
    return None


def kind(name: str) -> str | None:
    """How it is read: one of the values of KINDS."""
    return KINDS.get(suffix(name) or "")


def unknown(archive: Path) -> Unsupported:
    return Unsupported(
        f"{archive.name} is no archive that can be unpacked",
        where=str(archive),
        hint=f"pack it as one of {', '.join(KINDS)}",
    )


def without_zstd(archive: Path) -> AllranksError:
    return AllranksError(
        f"{archive.name} is compressed by zstd, and this node has no program of that name",
        where=str(archive),
        hint="install zstd on the nodes, or pack it as .tar or .tar.gz",
    )


def broken(archive: Path, why: object) -> AllranksError:
    return AllranksError(
        f"{archive.name} cannot be unpacked: {why}",
        where=str(archive),
        hint="it is cut off or damaged: make it again, or copy it again from where it is whole",
    )
