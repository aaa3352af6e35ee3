"""`allranks az ml …`: shell scripts and CI files written for Azure's command line run as they are,
with `alias az='allranks az'`."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allranks.api import routes
from allranks.cli.az import shapes
from allranks.cli.az.print_answer import check_query, print_answer
from allranks.cli.az.verbs import VERBS, Line, help_of, read
from allranks.cli.output import show
from allranks.errors import UsageError
from allranks.sdk.connection import find_server

if TYPE_CHECKING:
    from allranks.api.common import Document

# What prepares a subscription: there is none here.
_PREPARES = ("login", "logout", "account", "configure", "config", "extension", "group", "version")
# Verbs whose answers are keys.
_KEYS = ("get-credentials", "regenerate-keys")
# Jobs of a list that has all.
_ALL = "1000000"
_NOBODY = "00000000-0000-0000-0000-000000000000"
_ACCOUNT = {"id": _NOBODY, "name": "allranks", "state": "Enabled", "tenantId": _NOBODY}


def az_options(parser: argparse.ArgumentParser) -> None:
    verbs = "\n".join(f"  az ml {each}" for each in VERBS)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    line = "the line without its `az`"
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="ml NOUN VERB …", help=line)
    parser.epilog = (
        f"verbs:\n{verbs}\n\n`az login`, `account`, `configure`, `extension` and `group`, and "
        "`az ml workspace` do nothing: there is no subscription."
    )


def az(options: argparse.Namespace) -> int:
    """Run a line of az's with our commands."""
    words = options.words
    if words[:1] == ["ml"] and {"-h", "--help"} & {*words}:
        noun, verb = [*(word for word in words[1:3] if word[:1] != "-"), "", ""][:2]
        print(help_of(noun, verb))
        return 0
    if words[:1] == ["ml"] and words[1:2] != ["job"] and words[2:3] in (["archive"], ["restore"]):
        show.talk("only jobs are archived here: a version is listed until it is deleted")
        return 0
    if words[:1] == ["ml"] and words[1:2] != ["workspace"]:
        return _run(read(words[1:]))
    if words[:2] != ["ml", "workspace"] and (not words or words[0] not in _PREPARES):
        hint = "`allranks az --help` lists the lines that run here"
        raise UsageError(f"`{' '.join(['az', *words[:2]])}` is not there", hint=hint)
    if words[:2] in (["account", "show"], ["account", "get-access-token"]):
        output, query = _shown(words[2:])
        print_answer(_ACCOUNT if words[1] == "show" else _access_token(), output, query)
    else:
        show.talk(f"`az {' '.join(words[:2])}` does nothing here: there is no subscription")
    return 0


def _access_token() -> Document:
    """The caller's own token; null as its end where it is valid until revoked."""
    from datetime import datetime  # lazy: few lines need it

    with find_server.connect() as client:
        expires_at = client.ask(routes.show_caller)["expires_at"]
        end = expires_at and datetime.fromisoformat(expires_at).astimezone()
        return {
            "accessToken": client.token,
            "expiresOn": end and end.strftime("%Y-%m-%d %H:%M:%S.%f"),
            "expires_on": end and int(end.timestamp()),
            "subscription": _NOBODY,
            "tenant": _NOBODY,
            "tokenType": "Bearer",
        }


def _shown(words: Sequence[str]) -> tuple[str, str]:
    """The output and query of a line that is not read otherwise."""
    values = dict(zip(words, [*words[1:], ""], strict=False))
    return values.get("-o") or values.get("--output") or "json", values.get("--query", "")


def _run(line: Line) -> int:
    if line.query:
        check_query(line.query)
    if line.noun == "job":
        return _job(line)
    if line.noun == "compute" and line.verb == "create" and (name := _azures(line.words[2:])):
        print_answer(_stands_for_default(name), line.output, line.query)
        return 0
    if line.verb == "get-logs":
        return _ours(line.words)
    if line.noun.startswith("batch-"):
        return _batch(line)
    if line.verb == "invoke":
        print_answer(_text(line.words).rstrip("\n"), line.output, line.query)
        return 0
    if (line.noun, line.verb) == ("online-deployment", "delete") and line.values.get("--local"):
        from allranks.sdk.assets.endpoints import take_traffic  # lazy: imports the models

        take_traffic(dict(pairwise(line.words)).get("-e", ""), line.words[2])
    answer = _answer([*line.words, "--json"])
    if line.noun.startswith("online-") and line.verb not in ("delete", *_KEYS):
        rows = answer if isinstance(answer, list) else [answer]
        shaped = [shapes.served(row) for row in rows]
        print_answer(shaped if isinstance(answer, list) else shaped[0], line.output, line.query)
        return 0
    if line.verb in _KEYS:
        print_answer(answer, line.output, line.query)
        return 0
    if line.verb == "list":
        (most,) = line.values.get("--max-results", [""])
        rows = _rows(answer)[: int(most) if most.isdigit() else None]
        answer = [shapes.asset(row) for row in rows]
    elif isinstance(answer, dict):
        answer = shapes.asset(answer)
    if line.verb != "delete":
        print_answer(answer, line.output, line.query)
    return 0


def _batch(line: Line) -> int:
    """Batch endpoints and deployments, and their jobs."""
    if line.verb == "invoke":
        name = _text(line.words).strip()
        answer: Any = shapes.job(_answer(["job", "show", name, "--json"]), _address())
    else:
        sets = [f"defaults.{text}" for text in line.values.get("--defaults", ())]
        sets += [f"description={text}" for text in line.values.get("--description", ())]
        more = [word for text in sets for word in ("--set", text)]
        answer = _answer([*line.words, *more, "--json"])
        shape = shapes.job if line.verb == "list-jobs" else shapes.batch
        is_list = isinstance(answer, list)
        answer = [shape(item) for item in answer] if is_list else shape(answer)
        if line.noun == "batch-endpoint" and line.verb in ("show", "create", "update"):
            from allranks.sdk.assets.batch import jobs_address  # lazy: imports the models

            answer["scoring_uri"] = jobs_address(_address(), answer["name"])
    if line.verb != "delete":
        print_answer(answer, line.output, line.query)
    return 0


def _azures(words: Sequence[str]) -> str:
    """The name of a compute that is to be made and of a type that only Azure has, or nothing."""
    values = dict(pairwise(words))
    data: Document = {}
    if "-f" in values:
        from allranks.spec.yaml import load  # lazy: imports the models

        data, _ = load.read(load.content(Path(values["-f"])), file=values["-f"])
    kind = values.get("--type") or str(data.get("type", ""))
    name = words[0] if words and not words[0].startswith("-") else str(data.get("name", ""))
    return name if kind.lower() in ("amlcompute", "computeinstance") else ""


def _stands_for_default(name: str) -> Document:
    """No machines are created: the name stands for the default compute."""
    from allranks.sdk.assets.computes import Computes  # lazy: imports the models
    from allranks.spec.compute import AmlCompute  # lazy: as above

    made = Computes().begin_create_or_update(AmlCompute(name=name)).result()
    show.talk(f"no machines are created: {name} stands for the compute {made.name!r}")
    return {"name": name, "type": "amlcompute", "provisioning_state": "Succeeded"}


def _job(line: Line) -> int:
    if line.verb == "stream":
        return _stream(line.words[2])
    if line.verb == "create":
        return _create(line)
    if line.verb == "connect-ssh":
        return _connect(line)
    words = [*line.words]
    if line.values.get("--all-results", ["false"])[0].lower() == "true":
        words += ["--limit", _ALL]
    if line.verb == "update":
        words += _tags(line.values.get("--set", []))
    if line.verb == "download":
        words.append("--any-folder")
    answer = _answer([*words, "--json"])
    if line.verb == "list":
        answer = [shapes.job(each) for each in answer]
    elif line.verb == "show-services":
        answer = shapes.services(answer, _address(), int(line.values.get("--node-index", ["0"])[0]))
    elif line.verb in ("show", "cancel", "update"):
        answer = shapes.job(answer, _address())
    if line.verb not in ("archive", "restore", "download"):
        print_answer(answer, line.output, line.query)
    if line.values.get("--web"):
        _open(words[2])
    return 0


def _create(line: Line) -> int:
    job = _answer([*line.words, "--json"])
    name, code = job["name"], 0
    if line.values.get("--web"):
        _open(name)
    if line.values.get("--stream"):
        code = _stream(name)
        job = _answer(["job", "show", name, "--json"])
    answer = shapes.job(job, _address())
    if saved := line.values.get("--save-as"):
        import yaml  # lazy: only with --save-as

        Path(saved[0]).write_text(yaml.safe_dump(answer, sort_keys=False), encoding="utf-8")
    print_answer(answer, line.output, line.query)
    return code


def _connect(line: Line) -> int:
    """A shell by OpenSSH, in place of this process."""
    entry = _answer([*line.words, "--json"])
    key = line.values.get("--private-key-file-path", [])
    words = ["ssh", "-F", entry["file"], *(["-i", *key] if key else []), entry["host"]]
    try:
        os.execvp("ssh", words)
    except OSError as error:
        hint = "install OpenSSH's client, or use `allranks job shell NAME`"
        raise UsageError(f"cannot start ssh: {error.strerror}", hint=hint) from None


def _stream(name: str) -> int:
    """The output of a job between the lines that az prints."""
    page = f"{_address()}/ui/jobs/{name}"
    print(f"RunId: {name}\nWeb View: {page}\n", flush=True)
    # az has no code of the job's own.
    code = int(_ours(["job", "stream", name]) != 0)
    print(f"\nExecution Summary\n=================\nRunId: {name}\nWeb View: {page}\n", flush=True)
    return code


def _open(name: str) -> None:
    url = _text(["ui", name, "--print-url"]).strip()
    show.talk(f"Web View: {url}")


def _tags(changes: Sequence[str]) -> list[str]:
    tags = []
    for text in changes:
        if not text.startswith("tags."):
            hint = "change tags: --set tags.KEY=VALUE"
            raise UsageError(f"{text[:80]!r} of a job cannot be changed", where="--set", hint=hint)
        tags.append(text.removeprefix("tags."))
    return tags


def _rows(answer: Any) -> list[Any]:
    return answer if isinstance(answer, list) else next(iter(answer.values()))


def _address() -> str:
    with find_server.connect() as client:
        return client.url


def _answer(words: Sequence[str]) -> Any:
    """What one of our commands says, as JSON."""
    return json.loads(_text(words) or "null")


def _text(words: Sequence[str]) -> str:
    written = io.StringIO()
    with contextlib.redirect_stdout(written):
        code = _ours(words)
    if code:
        sys.stdout.write(written.getvalue())
        raise SystemExit(code)
    return written.getvalue()


def _ours(words: Sequence[str]) -> int:
    from allranks.cli.main import run_words  # lazy: it is what runs this

    return run_words([*words])
