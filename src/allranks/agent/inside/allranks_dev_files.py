"""What the commands of a session run on its nodes, by any Python there, in the working folder.

`list`: the files that are there, by name, with what each holds; `pack`: some of them, as a tar;
`unpack`: what another node has packed.
"""

import hashlib
import json
import os
import sys
import tarfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List

_PIECE = 1 << 20


def digest(path):  # type: (str) -> str
    """What a file holds, or where a link leads; whether it can be run counts, too."""
    if os.path.islink(path):
        return "->" + os.readlink(path)
    result = hashlib.sha256()
    with open(path, "rb") as file:
        for piece in iter(lambda: file.read(_PIECE), b""):
            result.update(piece)
    return result.hexdigest() + "x" * bool(os.stat(path).st_mode & 0o100)


def names(skipped):  # type: (List[str]) -> Iterator[str]
    """The files and links of this folder, by their path in it."""
    for folder, folders, files in os.walk("."):
        links = [path for path in folders if os.path.islink(os.path.join(folder, path))]
        folders[:] = [path for path in folders if path not in links and path not in skipped]
        for path in [*files, *links]:
            yield os.path.relpath(os.path.join(folder, path), ".")


def listing(request):  # type: (Dict[str, Any]) -> Dict[str, Any]
    """The files, and those that are too large to be looked into unless they were sent."""
    held, large, sent = {}, {}, set(request["sent"])
    for name in names(request["skipped"]):
        try:
            status = os.lstat(name)
            if name not in sent and status.st_size > request["most"]:
                large[name] = status.st_size
            elif os.path.isfile(name) or os.path.islink(name):
                held[name] = digest(name)
        except OSError:
            continue  # it is gone, or cannot be read
    return {"files": held, "large": large}


def unpack():  # type: () -> None
    """Each file replaces the one that is there; another node may have sent it."""
    here = os.path.join(os.path.realpath("."), "")
    with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as archive:
        # From Python 3.14 on it refuses links that lead out of here, which are the user's.
        archive.extraction_filter = lambda member, path: member
        for member in archive:
            above, name = os.path.split(member.name)
            inside = os.path.join(os.path.realpath(above), "").startswith(here)
            if not inside or name in ("", ".", "..") or not (member.isfile() or member.issym()):
                raise SystemExit("%r is no file of the session" % member.name)
            if os.path.lexists(member.name):
                os.unlink(member.name)
            archive.extract(member)


def main():  # type: () -> None
    if sys.argv[1] == "unpack":
        unpack()
        return
    request = json.loads(sys.stdin.buffer.read().decode())
    if sys.argv[1] == "list":
        print(json.dumps(listing(request)))
        return
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as archive:
        for name in request:
            if os.path.lexists(name):
                archive.inodes = {}  # type: ignore  # a second name of a file is a file, too
                archive.add(name, recursive=False)


if __name__ == "__main__":
    main()
