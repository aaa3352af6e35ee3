"""`allranks ui`: open the web page, signed in."""

from __future__ import annotations

import argparse
import os
import socket
import sys
import webbrowser
from urllib.parse import quote, urlsplit

from allranks.cli.job_names import JobReference
from allranks.cli.output import show
from allranks.http_client import not_ours, shaped
from allranks.sdk.connection import find_server


def ui_options(parser: argparse.ArgumentParser) -> None:
    job = "show this job: its name, the beginning of it, or - for the newest"
    parser.add_argument("name", nargs="?", metavar="JOB", type=JobReference, help=job)
    text = "print the address instead of opening a browser; it signs its reader in once"
    parser.add_argument("--print-url", action="store_true", help=text)


def ui(options: argparse.Namespace) -> int:
    """Open the page, or a job's. The address is valid for five minutes."""
    with find_server.connect() as client:
        path = shaped(client.json("POST", "/ui/link"), {"path": str})["path"]
        if not path.startswith("/"):  # of another host, after an @
            raise not_ours(200)
        if options.name:
            path += f"&back={quote(f'/ui/jobs/{options.name}', safe='')}"
        address = client.url.rstrip("/") + path
    if options.json:
        show.as_json({"url": address})
        return 0
    if not options.print_url and _has_browser() and webbrowser.open(address):
        print(f"opened {address.partition('?')[0]} in the browser", file=sys.stderr)
        return 0
    show.line(address)
    if os.environ.get("SSH_CONNECTION") and _is_here(address):
        port = urlsplit(address).port
        host = socket.gethostname()
        print(
            f"from your own machine: ssh -N -L {port}:127.0.0.1:{port} {host}, "
            "then open the address there",
            file=sys.stderr,
        )
    return 0


def _has_browser() -> bool:
    """Whether a browser of this machine would show a window."""
    shown = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    return sys.platform == "darwin" or any(os.environ.get(each) for each in shown)


def _is_here(address: str) -> bool:
    return urlsplit(address).hostname in ("127.0.0.1", "localhost", "::1")
