"""Real hosts of a kind: network namespaces joined by a bridge, made and removed by a test.

Addresses are of 198.18.0.0/15, which is set aside for trying networks (RFC 2544).
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=120)


class Hosts:
    """``count`` namespaces; host i has eth1 with 198.18.0.<i + 1>/24."""

    def __init__(self, count: int) -> None:
        mark = f"ar{os.getpid():x}"
        self.names = [f"{mark}-{i}" for i in range(count)]
        self.switch = f"{mark}-s"

    def make(self) -> None:
        for name in (self.switch, *self.names):
            ip("netns", "add", name)
        ip("-n", self.switch, "link", "add", "br0", "type", "bridge")
        ip("-n", self.switch, "link", "set", "br0", "up")
        for i, name in enumerate(self.names):
            ip(
                *("-n", self.switch, "link", "add", f"v{i}", "type", "veth"),
                *("peer", "name", "eth1", "netns", name),
            )
            ip("-n", self.switch, "link", "set", f"v{i}", "master", "br0", "up")
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "addr", "add", f"198.18.0.{i + 1}/24", "dev", "eth1")
            ip("-n", name, "link", "set", "eth1", "up")

    def remove(self) -> None:
        for name in (self.switch, *self.names):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=120)

    def ip(self, host: int, *words: str) -> None:
        ip("-n", self.names[host], *words)

    def add(self, host: int, name: str) -> None:
        """One more interface that is up, leading nowhere."""
        self.ip(host, "link", "add", name, "type", "veth", "peer", "name", f"x-{name}")
        for each in (name, f"x-{name}"):
            self.ip(host, "link", "set", each, "up")

    def argv(self, host: int, *words: object) -> list[str]:
        return ["ip", "netns", "exec", self.names[host], *map(str, words)]

    def python(self, host: int, code: str, *words: str) -> Any:
        """What ``code`` prints as JSON, run on that host."""
        argv = self.argv(host, sys.executable, "-c", code, *words)
        return json.loads(subprocess.check_output(argv, timeout=120))


@contextmanager
def hosts(count: int) -> Iterator[Hosts]:
    """The hosts, or a skipped test where they cannot be had."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and iproute2")
    made = Hosts(count)
    try:
        try:
            made.make()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces here: {error.stderr.decode().strip()}")
        yield made
    finally:
        made.remove()
