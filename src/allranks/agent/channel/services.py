"""Services of a job on this node: JupyterLab, TensorBoard and the like, beside the ranks.

Each has a helper (`service_process`), which starts it and says how it goes. The end of the attempt
ends them; their own end is no failure of the job.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from allranks.agent.network.ports import LOOPBACK, free_port
from allranks.agent.processes.ranks import SHELL
from allranks.core.plan import ServiceTask
from allranks.errors import AllranksError

if TYPE_CHECKING:
    from allranks.agent.channel.channel_opener import Address, ChannelOpener

_ARGV = (sys.executable, "-P", "-S", "-m", "allranks.agent.channel.service_process")
# JupyterLab and VS Code listen on a socket that no other user of the node can open: whoever reaches
# them can run programs. `$1` is that socket, `$2` the working folder. code-server makes the path
# absolute, and Node cuts what is too long for a socket.
_JUPYTER = """\
set -- --no-browser --allow-root --ServerApp.sock="$1" --ServerApp.root_dir="$2" \\
    --IdentityProvider.token= --ServerApp.password= --ServerApp.allow_remote_access=True
command -v jupyter-lab >/dev/null && exec jupyter-lab "$@"
python -c 'import jupyterlab' 2>/dev/null && exec python -m jupyterlab "$@"
echo "the rank's environment has no JupyterLab: add jupyterlab to it"
exit 127
"""
_VS_CODE = """\
command -v code-server >/dev/null &&
    exec code-server --socket "/proc/self/cwd/$1" --auth none \\
        --disable-telemetry --disable-update-check "$2"
command -v openvscode-server >/dev/null &&
    exec openvscode-server --socket-path "/proc/self/cwd/$1" --without-connection-token
echo "neither the rank's environment nor the node's PATH has code-server or openvscode-server"
exit 127
"""
_TENSORBOARD = """\
mkdir -p "$2"
command -v tensorboard >/dev/null && exec tensorboard --logdir "$2" --host 127.0.0.1 --port "$1"
python -c 'import tensorboard' 2>/dev/null &&
    exec python -m tensorboard.main --logdir "$2" --host 127.0.0.1 --port "$1"
echo "the rank's environment has no TensorBoard: add tensorboard to it"
exit 127
"""
_ON_SOCKETS = {"jupyter_lab": _JUPYTER, "vs_code": _VS_CODE}


class ServiceRequest(TypedDict):
    """What a helper gets on its standard input. It listens on ``socket``, in ``folder``, or on
    ``port``; ``end`` and ``script`` as of `channel_opener.Request`."""

    argv: list[str]
    cwd: str
    env: dict[str, str]
    folder: str
    socket: str
    port: int
    log: str
    end: list[str]
    script: str


class Services:
    """``say(service, state, message)`` records how one goes; it is called in threads."""

    def __init__(
        self, opener: ChannelOpener, folder: Path, say: Callable[[str, str, str], None]
    ) -> None:
        self._opener, self._folder, self._say = opener, folder, say

    def begin(self, services: Sequence[ServiceTask], cwd: Path) -> None:
        """Start those of this node, and let channels find them."""
        started = [*self._opener.started.values()]
        env = started[0].env if started else self._opener.env()
        addresses: dict[str, Address] = {}
        for number, service in enumerate(services):
            try:
                request = self._request(number, service, cwd, env)
                addresses[service.name] = {
                    "port": request["port"],
                    "socket": request["socket"] and f"{request['folder']}/{request['socket']}",
                }
                if service.is_started:
                    self._start(service.name, request)
            except (AllranksError, OSError) as error:
                self._say(service.name, "Failed", str(error))
        self._opener.services = addresses

    def _start(self, name: str, request: ServiceRequest) -> None:
        self._say(name, "Starting", "")
        helper = self._opener.start_helper(_ARGV, json.dumps(request), subprocess.PIPE)
        threading.Thread(target=self._follow, args=(name, helper), daemon=True).start()

    def _follow(self, name: str, helper: subprocess.Popen[bytes]) -> None:
        assert helper.stdout is not None
        with helper.stdout as lines:
            for line in lines:
                self._say(name, *json.loads(line))

    def _request(
        self, number: int, service: ServiceTask, cwd: Path, env: Mapping[str, str]
    ) -> ServiceRequest:
        folder = self._folder / "services"
        folder.mkdir(mode=0o700, exist_ok=True)
        on_socket = service.type in _ON_SOCKETS
        path = f"{number}.sock" if on_socket else ""
        port = 0 if on_socket else service.port or free_port(LOOPBACK)
        own = {
            **env,
            "PORT": str(port),
            "JUPYTER_RUNTIME_DIR": str(folder),
        }
        argv = [SHELL, "-c", service.command]
        if on_socket:
            argv = [SHELL, "-c", _ON_SOCKETS[service.type], service.name, path, str(cwd)]
        elif service.type == "tensor_board":
            logs = str(cwd / (service.log_dir or "logs"))
            argv = [SHELL, "-c", _TENSORBOARD, service.name, str(port), logs]
        # A socket's path is relative, because it is limited to 107 bytes.
        where = folder if on_socket else cwd
        request: ServiceRequest = {
            "argv": argv,
            "cwd": str(where),
            "env": own,
            "folder": str(folder),
            "socket": path,
            "port": port,
            "log": str(folder / f"{number}.log"),
            "end": [],
            "script": "",
        }
        if self._opener.container is not None and service.is_started:
            inside = self._opener.container.entering(number, argv, where, own, False)
            request |= {**inside._asdict(), "cwd": "/", "env": self._opener.outside()}  # type: ignore[typeddict-item]
        return request
