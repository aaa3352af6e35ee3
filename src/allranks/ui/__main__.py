"""The process of the web page, `python -m allranks.ui`; the server starts it: `server.ui.child`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import uvicorn

from allranks.ui.app import create_app
from allranks.ui.sign_in import load_key


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m allranks.ui")
    parser.add_argument("--socket", required=True, help="the Unix socket to listen on")
    parser.add_argument("--api", required=True, help="the URL of the server")
    options = parser.parse_args()
    os.umask(0o077)
    app = create_app(options.api, load_key(Path("key")), Path("services"))
    uvicorn.run(app, uds=options.socket, log_level="warning", timeout_keep_alive=60)


if __name__ == "__main__":
    main()
