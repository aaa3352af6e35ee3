"""Archive formats by file name, and the errors for archives that cannot be unpacked."""

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
    """The suffix of an archive's name, or None for other files. A name such as ``.tar``, which
    leaves no name for a folder, is not an archive's."""
    for ending in KINDS:
        if name.lower().endswith(ending) and name[: -len(ending)] not in ("", ".", ".."):
            return ending
    return None


def kind(name: str) -> str | None:
    """The format: one of the values of KINDS, or None."""
    return KINDS.get(suffix(name) or "")


def unknown(archive: Path) -> Unsupported:
    return Unsupported(
        f"{archive.name} is not a supported archive",
        where=str(archive),
        hint=f"supported are {', '.join(KINDS)}",
    )


def without_zstd(archive: Path) -> AllranksError:
    return AllranksError(
        f"{archive.name} needs the program zstd, which this node does not have",
        where=str(archive),
        hint="install zstd on the nodes, or pack the archive as .tar or .tar.gz",
    )
