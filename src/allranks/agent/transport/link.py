"""The agent's connection to the server: one thread receives orders, another sends data.

Both retry without end; unsent data stays in the outbox and the log files. The main thread decides
when the server has been unreachable for too long (``silent_for``).
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from allranks import clock
from allranks.agent.transport.inbox import Inbox
from allranks.agent.transport.outbox import Outbox
from allranks.agent.transport.tails import PIECE, Feed, Tail
from allranks.core.packing import unpack
from allranks.errors import AllranksError, NotFound, TooLarge, Unauthorized, Unreachable, UsageError
from allranks.events import Event, Kind
from allranks.http_client import MAILBOX, Client

if TYPE_CHECKING:
    from allranks.agent.processes.guests import Guests
    from allranks.api.agents import (
        Acknowledgement,
        ChannelOrder,
        HelloAnswer,
        HelloRequest,
        Order,
        PaceAnswer,
        PaceReport,
        ProfileOrder,
        RankProfile,
    )
    from allranks.core.data.addresses import Account

# Seconds between checks of the logs for new output; more if the server takes long to answer: so
# many times that, up to a limit. The agents of many ranks that print would otherwise overload it.
LOOK, _REST, _LONGEST_LOOK = 0.1, 10.0, 2.0
# Seconds between sending points.
FEED = 1.0
# Seconds between calls to a server that does not answer.
AGAIN = 0.5
# Minimum seconds between two pieces of a log without a line end: ranks redraw progress bars many
# times a second.
REDRAW = 0.5
# Seconds for an answer, until the server's lease is known.
_TIMEOUT = 15.0
# Seconds until the first request for orders, if no answer to events brings one: the agent of a
# short job then needs none.
_FIRST = 0.25


class ServerAddress(NamedTuple):
    """The server's URL and the token for it. ``fingerprint`` is that of its certificate, for https.
    If no network leads to the server, ``url`` names the folder of a mailbox."""

    url: str
    token: str
    fingerprint: str = ""

    def client(self, timeout: float) -> Client:
        if self.url.startswith(MAILBOX):
            # lazy: few clusters need it
            from allranks.agent.transport.mailbox import Mailbox

            return Mailbox(self.url, self.token, timeout=timeout)
        return Client(self.url, self.token, timeout=timeout, fingerprint=self.fingerprint)


def pause_after(seconds: float) -> float:
    """Seconds until the next look at the logs, after an answer that took ``seconds``."""
    return min(max(LOOK, _REST * seconds), _LONGEST_LOOK)


class Link:
    """The connection to the server. ``attempt`` is the current one, or the one that was last
    ordered; ``stacks`` returns the stacks of the ranks; ``still`` is the next report on idle ranks
    to send."""

    def __init__(self, server: ServerAddress, node: int, outbox: Outbox, inbox: Inbox) -> None:
        self.attempt, self.node = 1, node
        self._base = f"/agent/v1/{node}"
        self.server = server
        self._outbox, self._inbox = outbox, inbox
        self._tails: list[Tail] = []
        self._feeds: list[Feed] = []
        self._feed_at = 0.0
        self._watched = False
        self._last_answer = self._silent_from = time.monotonic()
        self._server_id, self._known = "", ""
        self._refused = False
        self.stacks: Callable[[], list[dict[str, Any]]] = list
        # Called with each channel that somebody opens, in a thread of its own.
        self.channel: Callable[[ChannelOrder], None] | None = None
        self._last_channel = 0
        # The agents of other jobs on this node.
        self.guests: Guests | None = None
        # Profiles the ranks; takes seconds.
        self.profile: Callable[[ProfileOrder], list[RankProfile]] = lambda order: []
        self._last_profile = 0
        self.still: dict[str, Any] | None = None
        # The next report on when ranks called collectives; the answer to the last one.
        self.pace: PaceReport | None = None
        self.suspects = False
        # The number of the last request for stacks.
        self._stacks_request = 0
        self._timeout = _TIMEOUT
        # The connection of the thread that sends, and before that of ``hello``.
        self._client = server.client(_TIMEOUT)
        # Why no call has succeeded yet.
        self.trouble = ""
        # Called several times a second.
        self.tick: Callable[[], None] = lambda: None
        self._news = threading.Event()
        self._urgent = False
        self._pause = LOOK
        self._empty = threading.Condition()
        # Orders come with answers of two threads.
        self._ordered = threading.Lock()
        self._asks = threading.Event()

    def hello(self, patience: float, own_disk: bool) -> HelloAnswer | None:
        """Return the task and the clocks; None if the server dismisses this agent, or does not
        answer for ``patience`` seconds."""
        while self.silent_for() < patience:
            began = time.monotonic()
            try:
                request: HelloRequest = {"own_disk": own_disk}
                answer: HelloAnswer = self._client.json("POST", f"{self._base}/hello", request)
            except (Unauthorized, NotFound):
                self.trouble = ""
                return None
            except AllranksError as error:
                self.trouble = error.message
                time.sleep(AGAIN)
            else:
                self.trouble = ""
                self._answered(began)
                self.attempt = answer["attempt"]
                order = answer["order"]
                self._server_id, self._known = order["server"], order["id"]
                self._inbox.put(order)
                return answer
        return None

    def set_lease(self, lease: float) -> None:
        """Set the timeout of requests for orders, in seconds. The server answers them within a
        third of the lease; a request whose connection was lost must be repeated before the lease
        ends."""
        self._timeout = min(lease / 3, 10.0) + min(lease / 3, 3.0)

    def start(self) -> None:
        self._last_answer = time.monotonic()
        for target in (self._listen, self._ship):
            threading.Thread(target=target, daemon=True).start()

    @property
    def watched(self) -> bool:
        """Whether somebody looks at the job."""
        return self._watched

    def silent_for(self) -> float:
        """Seconds since the server last answered, or since `begin_silence`."""
        return time.monotonic() - max(self._last_answer, self._silent_from)

    def begin_silence(self) -> None:
        """The agent had work, and from now on waits for the server."""
        self._silent_from = time.monotonic()

    def follow(self, tail: Tail) -> None:
        self._tails.append(tail)

    def feed(self, feed: Feed) -> None:
        self._feeds.append(feed)

    def wake(self) -> None:
        """Send the outbox now, before the logs."""
        self._urgent = True
        self._news.set()

    def flush(self, patience: float) -> bool:
        """Wait until the server has everything. Return False if it does not answer for ``patience``
        seconds or dismisses this agent. Points that it refuses for that long are dropped."""
        began = time.monotonic()
        self._hurry()
        self._news.set()
        with self._empty:
            while not self._is_empty():
                self._hurry()
                self._empty.wait(0.05)
                now = time.monotonic()
                if self._refused or now - max(self._last_answer, began) > patience:
                    return False
                if now - began > patience:
                    self._drop_refused()
        return True

    def _hurry(self) -> None:
        """Have points and unfinished lines sent with the next look, too."""
        self._feed_at = 0.0
        for file in (*self._tails, *self._feeds):
            file.due = 0.0

    def account(self, datastore: str, patience: float) -> Account:
        """Return the credentials of a datastore, retrying while the server does not answer.

        Raises AllranksError if the server refuses, or after ``patience`` seconds.
        """
        from allranks.core.data.addresses import Account  # lazy: many jobs have none

        while True:
            try:
                with self.server.client(_TIMEOUT) as client:
                    return unpack(Account, client.json("GET", f"{self._base}/accounts/{datastore}"))
            except Unreachable:
                if self.silent_for() > patience:
                    raise
                time.sleep(AGAIN)

    def _listen(self) -> None:
        self._asks.wait(_FIRST)
        client = self.server.client(self._timeout)
        while True:
            before = self._known
            try:
                query = f"attempt={self.attempt}&known={before}&stacks={self._stacks_request}"
                if self.channel is not None:
                    query += f"&channels={self._last_channel}&profiles={self._last_profile}"
                if self.guests is not None and (report := self.guests.report()) is not None:
                    query += f"&guests={report}"
                order: Order = client.json("GET", f"{self._base}/orders?{query}")
            except (Unauthorized, NotFound):
                order = {
                    "do": "leave",
                    "attempt": self.attempt,
                    "id": "refused",
                    "server": self._server_id,
                    "heard": 0,
                }
            except (AllranksError, ValueError, KeyError):
                self._known = ""
                client.close()
                time.sleep(AGAIN)
                continue
            self._last_answer = time.monotonic()
            self._watched = order.pop("watched", False)
            if (number := order.pop("stacks", 0)) > self._stacks_request:
                self._stacks_request = number
                threading.Thread(target=self._send_stacks, args=(number,), daemon=True).start()
            profile = order.pop("profile", None)
            if profile is not None and profile["number"] > self._last_profile:
                self._last_profile = profile["number"]
                threading.Thread(target=self._send_profile, args=(profile,), daemon=True).start()
            for channel in order.pop("channels", ()):
                if self.channel is not None and channel["number"] > self._last_channel:
                    self._last_channel = channel["number"]
                    threading.Thread(target=self.channel, args=(channel,), daemon=True).start()
            if (guests := order.pop("guests", None)) is not None and self.guests is not None:
                self.guests.reconcile(guests)
            if order["server"] != self._server_id:
                self._resend(order)
            with self._ordered:
                # An answer to events may have overtaken this one.
                if order["id"] == self._known or self._known != before:
                    continue
                self._known = order["id"]
                if order["do"] == "prepare":
                    # Set here, because the next request must already be about the new attempt.
                    self.attempt = order["attempt"]
                self._inbox.put(order)
            if order["do"] == "leave":  # no other order follows
                client.close()
                return

    def _send_stacks(self, number: int) -> None:
        """Answer the request with that number; if that fails, the server asks again."""
        path, data = f"{self._base}/stacks/{number}", self.stacks()
        with contextlib.suppress(AllranksError, OSError), self.server.client(_TIMEOUT) as client:
            client.json("PUT", path, data)

    def _send_profile(self, order: ProfileOrder) -> None:
        """Profile the ranks and send what each has said; each by itself, as it may be large."""
        path, ranks = f"{self._base}/profiles/{order['number']}", self.profile(order)
        with contextlib.suppress(AllranksError, OSError), self.server.client(_TIMEOUT) as client:
            for rank in ranks:
                client.json("PUT", path, {"last": False, "rank": rank})
            client.json("PUT", path, {"last": True, "rank": None})

    def _resend(self, order: Order) -> None:
        """Send what a restarted server lacks: its record may have been restored from a backup."""
        self._server_id = order["server"]
        self._outbox.acknowledged(order["heard"])
        for file in (*self._tails, *self._feeds):
            file.sure = False
        self._news.set()

    def _ship(self) -> None:
        client = self._client
        while True:
            self._news.wait(self._pause)
            self._news.clear()
            self.tick()
            try:
                if self._urgent:
                    self._urgent = False
                    self._send_events(client)
                while self._send_logs(client):
                    self._send_events(client)
                if time.monotonic() >= self._feed_at:
                    self._feed_at = time.monotonic() + FEED
                    self._send_points(client)
                self._send_events(client)
                if (still := self.still) is not None:
                    client.json("PUT", f"{self._base}/still/{self.attempt}", still)
                    self.still = None if self.still is still else self.still
                if (pace := self.pace) is not None:
                    self.pace = None
                    answer: PaceAnswer
                    answer = client.json("PUT", f"{self._base}/pace/{self.attempt}", pace)
                    self.suspects = answer["suspects"]
            except (Unauthorized, NotFound):
                self._refused = True
                client.close()
                return
            except (AllranksError, OSError, ValueError, KeyError):
                # The server does not answer, or another program does: try again.
                client.close()
                time.sleep(AGAIN)
            with self._empty:
                self._empty.notify_all()

    def _send_events(self, client: Client) -> None:
        """Send unacknowledged events. If the server refuses the request because of one event, send
        them one by one, and reduce the refused one."""
        events = self._due(self._outbox.unacknowledged())
        if not events:
            return
        try:
            self._send(client, events)
        except (UsageError, TooLarge):
            for event in events:
                try:
                    self._send(client, [event])
                except (UsageError, TooLarge) as error:
                    self._outbox.reduce(event.seq, error.message)
                    return

    def _due(self, events: Sequence[Event]) -> Sequence[Event]:
        """The events that may be sent now: DRAINED, and what follows it, only after all logs and
        points of its attempt."""
        for index, event in enumerate(events):
            if event.kind is Kind.DRAINED and not self._has_all(event.attempt):
                return events[:index]
        return events

    def _send(self, client: Client, events: Sequence[Event]) -> None:
        path = f"{self._base}/events?now={clock.now()}"
        began = time.monotonic()
        answer: Acknowledgement = client.json("POST", path, [event._asdict() for event in events])
        self._answered(began)
        self._outbox.acknowledged(answer["acknowledged"])
        if "order" in answer:
            self._go(answer["order"])
        elif any(event.kind is Kind.READY for event in events):
            self._asks.set()

    def _go(self, order: Order) -> None:
        """Follow the order to ranks that are ready, unless another one has come meanwhile."""
        with self._ordered:
            waits = self._inbox.order["do"] in ("wait", "prepare")
            if waits and order["do"] == "go" and order["attempt"] == self.attempt:
                self._known = order["id"]
                self._inbox.put(order)

    def _send_logs(self, client: Client) -> bool:
        """Send a piece of each log that has grown. Return whether there is more to send."""
        more = False
        for tail in self._tails:
            piece = tail.rest()
            now = time.monotonic()
            unfinished = b"\n" not in piece and len(piece) < PIECE
            if unfinished and tail.sure and now < tail.due:
                continue
            if piece or not tail.sure:
                tail.due = now + REDRAW if unfinished else 0.0
                age = tail.age() if piece else 0
                path = f"{self._base}/logs/{tail.attempt}/{tail.rank}?age={age}&offset={tail.sent}"
                self._put(client, tail, path, piece)
                more = more or len(piece) == PIECE
        return more

    def _send_points(self, client: Client) -> None:
        """Send new points of each feed; refusing one feed does not delay the others. Those of
        resource use travel in batches while nobody looks at them."""
        for feed in list(self._feeds):
            if feed.sure and not self._watched and feed.waits():
                continue
            try:
                while (piece := feed.rest()) or not feed.sure:
                    path = f"{self._base}/points/{feed.attempt}/{feed.name}?offset={feed.sent}"
                    self._put(client, feed, path, piece)
                    feed.sent_batch(self.node)
                    feed.refused = ""
            except (Unauthorized, NotFound, Unreachable):
                raise
            except AllranksError as error:
                feed.refused = error.message

    def _drop_refused(self) -> None:
        """Stop sending feeds that the server refuses, because the job must not wait for them."""
        for feed in [feed for feed in self._feeds if feed.refused]:
            self._feeds.remove(feed)
            message = f"some {feed.name} are missing from the record: {feed.refused}"
            self._outbox.say(Kind.NOTE, feed.attempt, message=message, about="metrics")

    def _put(self, client: Client, file: Tail, path: str, piece: bytes) -> None:
        """Send a piece of a file and store how much of it the server has now."""
        file.sure = True  # before the call: `_resend` may reset it meanwhile
        began = time.monotonic()
        try:
            file.sent = json.loads(client.call("PUT", path, piece).body)["size"]
        except BaseException:
            file.sure = False
            raise
        file.free_sent()
        self._answered(began)

    def _answered(self, began: float) -> None:
        self._last_answer = time.monotonic()
        self._pause = pause_after(self._last_answer - began)

    def _has_all(self, attempt: int) -> bool:
        """Whether the server has all logs and points up to that attempt."""
        files = [file for file in (*self._tails, *self._feeds) if file.attempt <= attempt]
        return all(file.sure and not file.rest() for file in files)

    def _is_empty(self) -> bool:
        return not self._outbox.unacknowledged() and self._has_all(self.attempt)
