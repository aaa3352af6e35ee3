"""A state folder of the home by itself: what senders of one content do to each other."""

import contextlib
import hashlib
from concurrent.futures import ThreadPoolExecutor, wait

import pytest

from allranks.errors import UsageError
from allranks.store.files import receiver
from allranks.store.files.state_folders import State

CONTENT = b"0123456789"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Late:
    """A lock of which another who wants it is always faster."""

    def __init__(self, lock, first):
        self.lock, self.first = lock, first

    def __enter__(self):
        first, self.first = self.first, lambda: None
        first()
        self.lock.acquire()

    def __exit__(self, *_):
        self.lock.release()


@pytest.fixture
def state(tmp_path):
    """One that half of a content has come of."""
    state = State(tmp_path / "s")
    assert state.receive(SHA256, 0, 10, CONTENT[:5]) == 5
    return state


def late(state, first):
    part = state.incoming._parts[SHA256]
    part.lock = Late(part.lock, first)


def test_who_waited_while_another_spoilt_a_content_begins_again(state):
    def spoil():
        with pytest.raises(UsageError, match="content does not match"):
            state.receive(SHA256, 5, 10, b"wrong")
        state.receive(SHA256, 0, 10, CONTENT[:3])

    late(state, spoil)
    assert state.receive(SHA256, 5, 10, CONTENT[5:]) == 3
    assert state.receive(SHA256, 3, 10, CONTENT[3:]) == 10
    assert state.content(SHA256).read_bytes() == CONTENT


def test_who_waited_while_another_brought_a_content_leaves_nothing(state):
    late(state, lambda: state.receive(SHA256, 5, 10, CONTENT[5:]))
    assert state.receive(SHA256, 5, 10, CONTENT[5:]) == 10
    assert state.content(SHA256).read_bytes() == CONTENT
    assert list((state.folder / "coming").iterdir()) == []
    assert state.incoming._parts == {}


def test_all_of_it_came_and_nobody_said_so(tmp_path):
    """A server that is killed between the last piece and its name: the next sender asks once."""
    killed = State(tmp_path / "s")
    assert killed.receive(SHA256, 0, 10, CONTENT[:5]) == 5
    with (tmp_path / "s" / "coming" / SHA256).open("ab") as file:
        file.write(CONTENT[5:])
    after = State(tmp_path / "s")
    assert after.incoming.size(SHA256) == 10
    assert after.receive(SHA256, 10, 10, b"") == 10
    assert after.incoming.size(SHA256) is None


def test_a_part_that_is_longer_than_its_content_begins_again(tmp_path):
    state, data = State(tmp_path / "of"), b"right"
    sha256 = hashlib.sha256(data).hexdigest()
    assert state.receive(sha256, 0, 99, b"much too long") == 13
    with pytest.raises(UsageError):
        state.receive(sha256, 13, len(data), b"")
    assert state.incoming.size(sha256) == 0
    assert state.receive(sha256, 0, len(data), data) == len(data)
    assert state.content(sha256).read_bytes() == data


@pytest.mark.parametrize("attack", ["opens many others", "unload", "discard"])
def test_no_other_sender_gets_its_bytes_under_the_name_of_what_is_written(
    state, monkeypatch, attack
):
    """While somebody writes the last piece, another makes the server open the file again."""
    monkeypatch.setattr(receiver, "_OPEN", 2)
    part = state.incoming._parts[SHA256]
    write = part.write
    others = ThreadPoolExecutor(1)
    later = []

    def slowly(data):
        write(data[:-1])
        if attack == "opens many others":
            for number in range(3):
                state.receive(f"{number:064}", 0, 9, b"x")
        elif attack == "unload":
            state.unload()
        else:
            state.incoming.discard(SHA256)
        other = len(CONTENT) - 1 if attack != "discard" else 0
        later.append(others.submit(state.receive, SHA256, other, 99, b"wrong"))
        wait(later, timeout=0.2)
        write(data[-1:])

    part.write = slowly
    with contextlib.suppress(UsageError):
        state.receive(SHA256, 5, 10, CONTENT[5:])
    with contextlib.suppress(UsageError):
        later[0].result(10)
    assert not state.content(SHA256).exists() or state.content(SHA256).read_bytes() == CONTENT
