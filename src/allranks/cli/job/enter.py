"""`allranks job exec`, `shell`, `debug` and `port-forward`: get into a running job."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import termios
import tty
from types import FrameType

from allranks.channel import Frame, size
from allranks.cli.job_names import job_argument
from allranks.cli.output import show
from allranks.errors import UsageError
from allranks.sdk.jobs.channel import Channel, Follower, PortForward, execute

_HOST = "127.0.0.1"
# As of ssh: at the start of a line, `~.` leaves.
_ESCAPE, _LEAVE = b"~", b"."


def _where_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rank", type=int, metavar="R", help="the rank to enter (0)")
    parser.add_argument("--node", type=int, metavar="N", help="a node: its first rank")


def exec_options(parser: argparse.ArgumentParser) -> None:
    parser.usage = "allranks job exec [OPTIONS] NAME -- COMMAND…"
    job_argument(parser)
    _where_options(parser)
    command = "the program, with its words; it gets a piped standard input"
    parser.add_argument("command", nargs="+", metavar="COMMAND", help=command)


def exec(options: argparse.Namespace) -> int:
    """Run a program in a rank's environment, working folder and container; it ends with the job,
    and what it leaves running with it. Exits with its exit code."""
    stdin = None if sys.stdin.isatty() else 0
    if options.json:
        with open(0, "rb", closefd=False) as file:
            content = b"" if stdin is None else file.read()
        done = execute(
            options.name, options.command, input=content, rank=options.rank, node=options.node
        )
        show.as_json(
            {
                "exit_code": done.exit_code,
                "stdout": done.stdout.decode(errors="replace"),
                "stderr": done.stderr.decode(errors="replace"),
            }
        )
        return done.exit_code
    channel = Channel(options.name, options.rank, options.node, command=options.command)
    if stdin is None:
        channel.connection.send(Frame.EOF)
    return _Exec(channel, _Output(quiet=options.quiet), stdin).run(_wake_at(signal.SIGINT))


def shell_options(parser: argparse.ArgumentParser) -> None:
    job_argument(parser)
    _where_options(parser)


def shell(options: argparse.Namespace) -> int:
    """A bash in a rank's environment, working folder and container, in a terminal of its own; also
    while the job prepares or hangs. `exit` ends it, and so does `~.` after Enter, whatever runs."""
    return open_shell(options.name, options.rank, options.node)


def open_shell(name: str, rank: int | None, node: int | None) -> int:
    """See ``shell``."""
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    channel = Channel(name, rank, node, terminal=terminal)
    output = _Output(quiet=False)
    if not terminal:
        return Follower(channel, output, 0).run()
    return _Terminal(channel, output, 0).run_raw()


def debug_options(parser: argparse.ArgumentParser) -> None:
    job_argument(parser)
    parser.add_argument("--rank", type=int, metavar="R", help="the rank (the one that failed)")
    pid = "the process, of several that are held at the rank (the one that failed first)"
    parser.add_argument("--pid", type=int, default=0, metavar="P", help=pid)


def debug(options: argparse.Namespace) -> int:
    """pdb, post mortem, in the frame where a held rank failed (`run --on-failure hold`): `p NAME`,
    `up`, `down`, `interact`, `help`. `q` leaves, and so does `~.` after Enter; the job stays held.
    Commands may be piped in."""
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    channel = Channel(options.name, options.rank, None, terminal=terminal, debug=options.pid)
    output = _Output(quiet=False)
    if not terminal:
        return Follower(channel, output, 0).run()
    return _Terminal(channel, output, 0).run_raw()


def port_forward_options(parser: argparse.ArgumentParser) -> None:
    job_argument(parser)
    ports = "the port in the job, and the port here if it is another; 0 is any free one"
    parser.add_argument("port", metavar="[LOCAL:]PORT", help=f"{ports}; or a service's name")
    _where_options(parser)


def port_forward(options: argparse.Namespace) -> int:
    """Lead connections to a port of this machine to a port of a rank's node, or to a service of the
    job file; Ctrl-C stops it."""
    local, _, remote = options.port.rpartition(":")
    is_service = not remote.isdecimal()
    port = None if is_service else _port(remote)
    here = _port(local or ("0" if is_service else remote))
    if port == 0:
        raise UsageError("0 is no port of a job", where="PORT", hint="name the port that listens")
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((_HOST, here))
            listener.listen()
        except OSError as error:
            hint = f"another one: allranks job port-forward {options.name} 0:{remote}"
            reason = (error.strerror or str(error)).lower()
            raise UsageError(f"cannot listen on port {here}: {reason}", hint=hint) from None
        what = {"service": remote} if is_service else {"port": port}
        channel = Channel(options.name, options.rank, options.node, **what)
        target = remote if is_service else f"port {port}"
        address = f"{_HOST}:{listener.getsockname()[1]}"
        if options.json:
            show.as_line({"address": address, "to": f"{channel.where}, {target}"})
        else:
            show.line(f"http://{address}/" if is_service else address)
            if not options.quiet:
                show.talk(f"leads to {target} of {channel.where}; Ctrl-C stops it")
        PortForward(channel, listener, show.talk).serve()
    return 0


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 0xFFFF:
        raise UsageError(f"{text!r} is not a port", where="PORT", hint="a number below 65536")
    return int(text)


class _Output:
    """Writes what a program writes, as it is."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet

    def __call__(self, kind: Frame, data: bytes) -> None:
        if kind is Frame.NOTE:
            if not self._quiet:
                note = show.one_line(f"note: {data.decode(errors='replace')}")
                print(note, file=sys.stderr, end="\r\n")
            return
        stream = sys.stdout.buffer if kind is Frame.OUT else sys.stderr.buffer
        stream.write(data)
        stream.flush()


class _Exec(Follower):
    """The first Ctrl-C is the program's; the second one leaves."""

    _interrupts = 0

    def woken(self) -> None:
        self._interrupts += 1
        if self._interrupts > 1:
            raise KeyboardInterrupt
        self.connection.send(Frame.SIGNAL, b"%d" % signal.SIGINT)


class _Terminal(Follower):
    """This terminal, raw: every key is the program's, but for those that leave."""

    _after_enter, _held = True, b""

    def run_raw(self) -> int:
        before = termios.tcgetattr(0)
        wakes = _wake_at(signal.SIGWINCH)
        signal.signal(signal.SIGTERM, _exit)
        signal.signal(signal.SIGHUP, _exit)
        try:
            tty.setraw(0)
            self.woken()
            return self.run(wakes)
        except _Left:
            return 0
        finally:
            termios.tcsetattr(0, termios.TCSADRAIN, before)

    def woken(self) -> None:
        columns, rows = os.get_terminal_size(0)
        self.connection.send(Frame.RESIZE, size(rows, columns))

    def read(self, data: bytes) -> bytes:
        passed = b""
        for key in (data[i : i + 1] for i in range(len(data))):
            if self._held and key == _LEAVE:
                raise _Left
            if self._after_enter and not self._held and key == _ESCAPE:
                self._held = key
                continue
            passed += self._held + key
            self._held, self._after_enter = b"", key in (b"\r", b"\n")
        return passed


class _Left(Exception):
    """The user has left with the keys for it."""


def _exit(number: int, _: FrameType | None) -> None:
    sys.exit(128 + number)


def _wake_at(number: signal.Signals) -> int:
    """A descriptor that becomes readable when that signal has come."""
    read, write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    signal.signal(number, lambda *_: None)
    return read
