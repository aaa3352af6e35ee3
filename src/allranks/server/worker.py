"""The one kind of background thread of the server: it wakes, looks, logs what fails, tries again,
and stops."""

from __future__ import annotations

import logging
import queue
import threading

from allranks.errors import AllranksError

# Seconds that the server waits for a thread to end.
_STOP_TIMEOUT = 3.0


class Worker:
    """A chore of the server: a subclass's ``look``, called from ``start`` until ``stop``. ``wake``
    and ``end`` may be called from any thread.

    ``first``: the seconds until the first look, None to wait to be woken. ``retry``: the seconds of
    rest after a look that failed: nothing that a job does may end the server, and a full disk or a
    locked database is as before afterwards.
    """

    def __init__(self, name: str, *, first: float | None = 0.0, retry: float = 1.0) -> None:
        self._log = logging.getLogger(f"allranks.{name}")
        self._name, self._first, self._retry = name, first, retry
        self._woken: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        # Set once it has to end: a long look breaks off.
        self.ending = threading.Event()

    def look(self, names: set[str]) -> float | None:
        """Do what is due; return the seconds until the next look, None to wait to be woken.
        ``names``: for which of these it was woken; none when the time was over."""
        raise NotImplementedError

    def finish(self) -> None:
        """What is done last, in the thread."""

    def start(self) -> None:
        self._thread.start()

    def wake(self, name: str = "") -> None:
        """Look now."""
        self._woken.put(name)

    def end(self) -> None:
        """Begin to stop."""
        self.ending.set()
        self._woken.put(None)

    def join(self, seconds: float) -> None:
        if self._thread.is_alive():
            self._thread.join(max(0.0, seconds))

    def stop(self) -> None:
        self.end()
        self.join(_STOP_TIMEOUT)

    def _run(self) -> None:
        seconds = self._first
        while (names := self._wait(seconds)) is not None:
            try:
                seconds = self.look(names)
                continue
            except (AllranksError, OSError) as error:
                self._log.warning("%s failed, retrying in %g s: %s", self._name, self._retry, error)
            except Exception:
                self._log.exception("%s failed, retrying in %g s", self._name, self._retry)
            self.ending.wait(self._retry)
            seconds = 0.0
        self.finish()

    def _wait(self, seconds: float | None) -> set[str] | None:
        """The names it was woken for; none when the time is over; None to end."""
        names: set[str] = set()
        try:
            name = self._woken.get(timeout=seconds)
            while name is not None:
                names.add(name)
                name = self._woken.get_nowait()
            return None
        except queue.Empty:
            return names
