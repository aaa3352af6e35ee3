"""The current Python as a list of its packages, from which a node that lacks it makes the same.

Packages of an index are named by their version, others by their address; those of this machine,
and those in development, go along as wheels. The list is kept in the home until an installation
changes a folder of packages.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit, urlunsplit

from allranks import settings
from allranks.agent.environments import pip_conf
from allranks.agent.environments.current_python import BUILD, OF_CUDA, WHEELS, fingerprint
from allranks.core.environments import conda
from allranks.core.packing import pack, unpack
from allranks.core.plan import CurrentPython
from allranks.errors import UsageError
from allranks.masking import without_credentials
from allranks.sdk.submit.current_environment import python_behind_shim
from allranks.sdk.submit.editable_packages import python_in, sites_of
from allranks.sdk.submit.repack import is_pure, repack

_VERSION = re.compile(r"/python(\d+\.\d+t?)/")
# Of tools that make environments.
_KNOWN_PTH = ("_virtualenv.pth", "distutils-precedence.pth", "easy-install.pth")
# Folders of a distribution's own packages.
_SYSTEM = "dist-packages"
_MANY = 5
_FORMAT = 1


class Lock(NamedTuple):
    """The current Python, and the wheels that go along."""

    python: CurrentPython
    wheels: tuple[Path, ...] = ()


def lock(base: Mapping[str, str]) -> Lock | None:
    """The Python of jobs whose variables are ``base``; None if they have none."""
    path = python_behind_shim() or python_in(base.get("PATH", "").partition(":")[0])
    sites = [site for site in sites_of(path, base) if os.path.isdir(site)] if path else []
    folders = [*sites, f"/{os.path.basename(os.path.realpath(path))}/"]
    match = next(filter(None, map(_VERSION.search, folders)), None)
    if match is None or not sites:
        return None
    made = _kept(path, match[1], sites)
    indexes, more = _indexes(os.environ)
    python = made.python._replace(
        requirements=(*indexes, *made.python.requirements), notes=(*made.python.notes, *more)
    )
    return made._replace(python=python)


def _kept(path: str, version: str, sites: Sequence[str]) -> Lock:
    """The list as it was made last, if the folders are as they were then."""
    root = settings.home().python
    of = hashlib.sha256(path.encode(errors="surrogateescape")).hexdigest()[:16]
    changes = [(site, os.stat(site).st_mtime_ns) for site in sites]
    text = json.dumps([_FORMAT, path, version, changes])
    folder = root / f"{of}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    try:
        data = json.loads((folder / "lock.json").read_text())
        wheels = tuple(folder / name for name in data["wheels"])
        return Lock(unpack(CurrentPython, data["python"]), wheels)
    except (OSError, ValueError, KeyError, TypeError):
        pass
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    beside = Path(tempfile.mkdtemp(dir=root, prefix=f"{of}."))
    try:
        made = _Reader(path, version, sites, beside).read()
        names = [wheel.name for wheel in made.wheels]
        (beside / "lock.json").write_text(
            json.dumps({"python": pack(made.python), "wheels": names})
        )
        for old in root.glob(f"{of}-*"):
            shutil.rmtree(old, ignore_errors=True)
        beside.rename(folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return made._replace(wheels=tuple(folder / name for name in names))


class _Reader:
    """Reads the packages in ``sites``; wheels go to ``folder``."""

    def __init__(self, path: str, version: str, sites: Sequence[str], folder: Path) -> None:
        self._path, self._version, self._sites, self._folder = path, version, sites, folder
        self._requirements: dict[str, str] = {}
        self._wheels: list[Path] = []
        self._owned: set[str] = set()
        self._left: dict[str, list[str]] = {}
        self._compiled: list[str] = []

    def read(self) -> Lock:
        # Before the packages: an installation meanwhile leads to another list, not to a wrong one.
        mark = fingerprint(self._sites)
        for site in self._sites:
            for name in sorted(os.listdir(site)):
                self._add(Path(site, name))
        if "torch" in self._requirements:
            for name in [*self._requirements]:
                if OF_CUDA.fullmatch(name):
                    del self._requirements[name]
        self._look_at_paths()
        self._look_at_conda()
        lines = tuple(self._requirements[name] for name in sorted(self._requirements))
        notes = tuple(_sentence(why, names) for why, names in self._left.items())
        if self._compiled:
            notes += (
                f"compiled on this machine ({os.uname().machine}), and of no use on a node of "
                f"another kind or with an older C library: {', '.join(self._compiled)}",
            )
        return Lock(
            CurrentPython(self._path, self._version, tuple(self._sites), mark, lines, notes),
            tuple(self._wheels),
        )

    def _add(self, info: Path) -> None:
        stem, kind = os.path.splitext(info.name)
        if kind not in (".dist-info", ".egg-info", ".egg-link"):
            return
        name, _, version = stem.partition("-")
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in self._requirements:
            return  # the first folder wins, as for imports
        installer = _text(info / "INSTALLER").strip()
        self._owned |= {line.partition(",")[0] for line in _text(info / "RECORD").splitlines()}
        origin = _origin(info)
        if kind == ".egg-link":
            self._leave("installed by `setup.py develop` (use `pip install -e`)", name)
        elif info.parent.name == _SYSTEM and installer not in ("pip", "uv"):
            self._leave("installed by the system's package manager", name)
        elif kind == ".egg-info":
            self._leave("installed without a list of their files", name)
        elif not origin or installer == "conda":
            self._requirements[key] = f"{name}=={BUILD.sub('', version)}"
        elif origin["url"].startswith("file:") or _is_signed(origin["url"]):
            if key != "allranks" or not (origin.get("dir_info") or {}).get("editable"):
                self._pack(key, name, info)
        else:
            self._requirements[key] = f"{name} @ {_address(origin)}"

    def _pack(self, key: str, name: str, info: Path) -> None:
        try:
            wheel = repack(info, self._folder)
        except (OSError, UsageError, UnicodeDecodeError):
            self._leave("installed without a list of their files", name)
            return
        if not is_pure(wheel):
            self._compiled.append(name)
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        self._wheels.append(wheel)
        address = f"file://${{{WHEELS}}}/{quote(wheel.name)}#sha256={digest}"
        self._requirements[key] = f"{name} @ {address}"

    def _look_at_paths(self) -> None:
        """Name files that change where Python imports from, and that no package has brought."""
        for site in self._sites:
            for name in sorted(os.listdir(site)):
                harmless = name in self._owned or name in _KNOWN_PTH
                if name.endswith(".pth") and not harmless:
                    self._leave("changes where Python imports from, but no package has it", name)

    def _look_at_conda(self) -> None:
        """Name what conda has installed beside packages of Python."""
        metas = Path(os.path.dirname(os.path.dirname(self._path)), "conda-meta")
        for file in sorted(metas.glob("*.json")):
            name = file.stem.rsplit("-", 2)[0]
            key = re.sub(r"[-_.]+", "-", conda.NAMES.get(name, name)).lower()
            if key not in self._requirements and conda.is_program(name):
                self._leave("installed by conda, and no package of Python", name)

    def _leave(self, why: str, name: str) -> None:
        self._left.setdefault(why, []).append(name)


def _sentence(why: str, names: Sequence[str]) -> str:
    more = f" and {len(names) - _MANY} more" if len(names) > _MANY else ""
    return (
        f"of your Python, a node that lacks it does not get: {', '.join(names[:_MANY])}{more} "
        f"({why}); name what the job needs by -e requirements.txt, or use --image"
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _origin(info: Path) -> dict[str, Any]:
    """Where a package was installed from, if not from an index."""
    try:
        origin = json.loads(_text(info / "direct_url.json"))
        return origin if isinstance(origin.get("url"), str) else {}
    except (ValueError, AttributeError):
        return {}


def _address(origin: Mapping[str, Any]) -> str:
    """The address of a package, as pip takes it."""
    url, version = _without_user(origin["url"]), origin.get("vcs_info")
    within = [f"subdirectory={quote(origin['subdirectory'])}"] if "subdirectory" in origin else []
    if version:
        url = f"{version['vcs']}+{url}@{version['commit_id']}"
    else:
        hashes = (origin.get("archive_info") or {}).get("hashes") or {}
        within += [f"sha256={hashes['sha256']}"] if "sha256" in hashes else []
    return f"{url}#{'&'.join(within)}" if within else url


def _without_user(url: str) -> str:
    """The address without a user and a password: they stay on this machine."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    keeps = parts.scheme.endswith("ssh")  # the user is part of the address
    return url if keeps or host == parts.netloc else urlunsplit(parts._replace(netloc=host))


def _is_signed(url: str) -> bool:
    """Whether a part of the address grants access to it: that stays on this machine, too."""
    query = f"?{urlsplit(url).query}"
    return without_credentials(query) != query


def _indexes(environ: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Lines with the indexes that pip and uv use here, and sentences about those that are of no
    use elsewhere."""
    toml = _uv_toml(environ)
    variables = {**toml, **pip_conf.for_uv(environ).variables, **environ}
    if "UV_EXTRA_INDEX_URL" in toml:
        urls = (toml["UV_EXTRA_INDEX_URL"], variables["UV_EXTRA_INDEX_URL"])
        variables["UV_EXTRA_INDEX_URL"] = " ".join(urls)
    rows, notes = list[str](), list[str]()
    for name, option in _INDEXES.items():
        for url in variables.get(name, "").replace(",", " ").split():
            url = url.partition("=")[2] if re.match(r"[\w.-]+=", url) else url
            if urlsplit(url).scheme not in ("http", "https"):
                continue
            plain = _without_user(url)
            plain = plain.partition("?")[0] if _is_signed(plain) else plain
            rows.append(f"{option} {plain}")
            if plain != url:
                notes.append(
                    f"the password of {plain} stays on this machine: a node needs its own, in "
                    "pip.conf or ~/.netrc"
                )
    return [*dict.fromkeys(rows)], notes


_INDEXES = {
    "UV_DEFAULT_INDEX": "--index-url",
    "UV_INDEX_URL": "--index-url",
    "UV_INDEX": "--extra-index-url",
    "UV_EXTRA_INDEX_URL": "--extra-index-url",
    "UV_FIND_LINKS": "--find-links",
}


def _uv_toml(environ: Mapping[str, str]) -> dict[str, str]:
    """The indexes of the user's uv.toml, as variables of uv."""
    home = environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME", ""), ".config")
    try:
        with open(os.path.join(home, "uv/uv.toml"), "rb") as file:
            import tomllib  # lazy: few users have the file

            data = tomllib.load(file)
    except (OSError, ValueError, RecursionError):
        return {}
    pip = data.get("pip") or {}
    variables = dict(_of_toml({**pip, **data}))
    return {name: value for name, value in variables.items() if value}


def _of_toml(data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    indexes = [index for index in data.get("index") or () if isinstance(index, Mapping)]
    default = [str(index.get("url")) for index in indexes if index.get("default")]
    extra = [str(index.get("url")) for index in indexes if not index.get("default")]
    extra += map(str, data.get("extra-index-url") or ())
    yield "UV_DEFAULT_INDEX", (default or [str(data.get("index-url") or "")])[0]
    yield "UV_EXTRA_INDEX_URL", " ".join(extra)
    yield "UV_FIND_LINKS", " ".join(map(str, data.get("find-links") or ()))
