import socket
from pathlib import Path

import pytest

from allranks.agent.network import ports
from allranks.errors import EngineError


def test_held_ports_are_nobody_elses_until_they_are_let_go():
    held = ports.hold(3)
    numbers = ports.numbers(held)
    assert len(set(numbers)) == 3
    for number in numbers:
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.2", number))
    ports.release(held)
    with socket.socket() as other:
        other.bind(("127.0.0.2", numbers[0]))


def test_they_lie_outside_the_kernels_own_range():
    text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
    first, last = map(int, text.split())
    held = ports.hold(8)
    assert all(not first <= number <= last for number in ports.numbers(held))
    ports.release(held)


def test_none_to_be_had(monkeypatch):
    monkeypatch.setattr(ports, "_range", lambda: (1, 1))
    with pytest.raises(EngineError, match="free ports"):
        ports.hold(1)
    assert ports.hold(0) == []


def test_a_port_that_a_user_fixes_is_claimed_by_one_job_of_the_host():
    long = "n" * 255
    ports.release(ports.claim([3], long))
    claims = ports.claim([4, 5], "A; 'x")
    with pytest.raises(ports.PortConflict, match="the job A; 'x on the same host uses port 5, too"):
        ports.claim([3, 5], "B")
    again = ports.claim([3], "C")
    ports.release(claims)
    ports.release(again)
    again = ports.claim([3, 5], "B")
    ports.release(again)


def test_ports_that_scripts_fix_are_left_to_them(monkeypatch):
    drawn = iter([29500, 12355, 31871])
    monkeypatch.setattr(ports.random, "randrange", lambda *limits: next(drawn))
    held = ports.hold(1)
    assert ports.numbers(held) == (31871,)
    ports.release(held)
