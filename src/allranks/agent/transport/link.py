"""The agent's side of the wire: one thread listens for orders, one sends what there is to send.

Neither ever gives up: a server that is away is asked again, the outbox and the log files keep what
it has not got. How long is too long is the main thread's to decide (``silent_for``).
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from allranks import clock
from allranks.agent.transport.inbox import Inbox
from allranks.agent.transport.outbox import Outbox
from allranks.errors import AllranksError, NotFound, TooLarge, Unauthorized, Unreachable, UsageError
from allranks.events import Event, Kind
from allranks.http_client import MAILBOX, Client

if TYPE_CHECKING:
    from allranks.plan.data.addresses import Account

# Seconds: how often the logs are looked at while ranks run, and how long between calls to a server
# that is away; the most bytes of a log in one request.
LOOK = 0.1
# How often points are sent: nobody needs a number before they have blinked.
FEED = 1.0
AGAIN = 0.5
# Seconds from one piece of a log that ends no line to the next: each rank redraws a progress bar
# many times a second.
REDRAW = 0.5
PIECE = 1 << 20
# A door's URL that names a folder, where no network leads to the server.
# Seconds for an answer, before the server has said how patient it is.
_TIMEOUT = 15.0


class ServerAddress(NamedTuple):
    """Where the server is, and what to show it; ``fingerprint`` is its certificate's, for https.
    Where no network leads to it, ``url`` names a folder."""

    url: str
    token: str
    fingerprint: str = ""

    def client(self, timeout: float) -> Client:
        if self.url.startswith(MAILBOX):
            # lazy: few clusters have no way to us
            from allranks.agent.transport.mailbox import Mailbox

            return Mailbox(self.url, self.token, timeout=timeout)
        return Client(self.url, self.token, timeout=timeout, fingerprint=self.fingerprint)


class Tail:
    """A rank's output file, and how much of it the server has."""

    def __init__(self, attempt: int, rank: int, path: Path) -> None:
        self.attempt, self.rank, self.path = attempt, rank, path
        self.sent = 0
        # Whether that is what this server has: one that began anew may have a restored record.
        self.sure = True
        # When a line that has not ended may be sent again, in time.monotonic().
        self.due = 0.0

    def rest(self) -> bytes:
        """What the server has not got; nothing more of a file that the job itself took away."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.sent)
                return file.read(PIECE)
        except OSError:
            return b""


class Feed(Tail):
    """A file of points, a line for each time: sent in whole lines, however long."""

    def __init__(self, attempt: int, name: str, path: Path) -> None:
        super().__init__(attempt, 0, path)
        self.name = name
        # Why the server does not take what is there, as it said.
        self.refused = ""

    def rest(self) -> bytes:
        try:
            with self.path.open("rb") as file:
                file.seek(self.sent)
                piece = file.read(PIECE)
                while piece and b"\n" not in piece and (more := file.read(PIECE)):
                    piece += more
        except OSError:
            return b""
        return piece[: piece.rfind(b"\n") + 1]


class Link:
    """The connection to the server. ``attempt`` is the one the agent is in or was last sent to;
    ``stacks`` tells where the processes of its ranks are; ``still`` is what is to be told next of
    how long they have done nothing."""

    def __init__(self, door: ServerAddress, node: int, outbox: Outbox, inbox: Inbox) -> None:
        self.attempt, self.node = 1, node
        self._base = f"/agent/v1/{node}"
        self.door = door
        self._outbox, self._inbox = outbox, inbox
        self._tails: list[Tail] = []
        self._feeds: list[Feed] = []
        self._feed_at = 0.0
        self._heard = time.monotonic()
        self._server = ""
        self._refused = False
        self.stacks: Callable[[], list[dict[str, Any]]] = list
        self.still: dict[str, Any] | None = None
        # The last question for stacks that was heard.
        self._asked = 0
        self._timeout = _TIMEOUT
        # Why nobody has been spoken to yet.
        self.trouble = ""
        self._news = threading.Event()
        self._empty = threading.Condition()

    def hello(self, patience: float) -> dict[str, Any] | None:
        """The task and the clocks; None when the server wants this agent to leave, or nobody has
        answered for ``patience`` seconds."""
        client = self.door.client(_TIMEOUT)
        while self.silent_for() < patience:
            try:
                found: dict[str, Any] = client.json("POST", f"{self._base}/hello", {})
            except (Unauthorized, NotFound):
                self.trouble = ""
                return None
            except AllranksError as error:
                self.trouble = error.message
                time.sleep(AGAIN)
            else:
                self.trouble = ""
                client.close()
                self.attempt = found["attempt"]
                return found
        return None

    def expect_answers_within(self, lease: float) -> None:
        """A question for orders is answered within a third of a lease. One that is not is asked
        again before the lease is over: the network may have lost the connection."""
        self._timeout = min(lease / 3, 10.0) + min(lease / 3, 3.0)

    def start(self) -> None:
        self._heard = time.monotonic()
        for each in (self._listen, self._ship):
            threading.Thread(target=each, daemon=True).start()

    def silent_for(self) -> float:
        """Seconds since the server last answered."""
        return time.monotonic() - self._heard

    def follow(self, tail: Tail) -> None:
        self._tails.append(tail)

    def feed(self, feed: Feed) -> None:
        self._feeds.append(feed)

    def news(self) -> None:
        """There is something in the outbox: send it now."""
        self._news.set()

    def flush(self, patience: float) -> bool:
        """Wait until the server has everything; False when it was away for ``patience`` seconds
        from now on, or wants to hear no more. Points that it refuses for so long are left out."""
        self._news.set()
        began = time.monotonic()
        with self._empty:
            while not self._is_empty():
                self._feed_at = 0.0  # points, too, now
                for tail in self._tails:
                    tail.due = 0.0
                self._empty.wait(0.05)
                now = time.monotonic()
                if self._refused or now - max(self._heard, began) > patience:
                    return False
                if now - began > patience:
                    self._leave_out()
        return True

    def fetch_code(self, digest: str, goal: Path, patience: float) -> None:
        """Download the snapshot; a server that goes away meanwhile is waited for.

        Raises AllranksError when it has not got it, or was away for ``patience`` seconds.
        """
        while True:
            try:
                with self.door.client(_TIMEOUT) as client, goal.open("wb") as file:
                    for piece in client.download(f"{self._base}/code/{digest}"):
                        file.write(piece)
                return
            except (Unauthorized, NotFound):
                raise
            except AllranksError:
                if self.silent_for() > patience:
                    raise
                time.sleep(AGAIN)

    def account(self, datastore: str, patience: float) -> Account:
        """What opens a datastore of the job's; a server that is away is waited for.

        Raises AllranksError when it does not tell, or was away for ``patience`` seconds.
        """
        from allranks.plan.data.addresses import Account  # lazy: many jobs have none

        while True:
            try:
                with self.door.client(_TIMEOUT) as client:
                    return Account.load(client.json("GET", f"{self._base}/accounts/{datastore}"))
            except Unreachable:
                if self.silent_for() > patience:
                    raise
                time.sleep(AGAIN)

    def _listen(self) -> None:
        client, known = self.door.client(self._timeout), ""
        while True:
            try:
                asked = f"attempt={self.attempt}&known={known}&stacks={self._asked}"
                order = client.json("GET", f"{self._base}/orders?{asked}")
            except (Unauthorized, NotFound):
                order = {"do": "leave", "id": "refused"}
            except (AllranksError, ValueError, KeyError):
                known = ""
                client.close()
                time.sleep(AGAIN)
                continue
            self._heard = time.monotonic()
            if (number := order.pop("stacks", 0)) > self._asked:
                self._asked = number
                threading.Thread(target=self._tell_stacks, args=(number,), daemon=True).start()
            if order.get("server", self._server) != self._server:
                self._begin_anew(order)
            if order["id"] == known:
                continue
            known = order["id"]
            if order["do"] == "prepare":
                # Set here: the very next question must already be about the new attempt.
                self.attempt = order["attempt"]
            self._inbox.put(order)
            if order["id"] == "refused":
                client.close()
                return

    def _tell_stacks(self, number: int) -> None:
        """Answer the question of that number; one that is not heard is asked anew by who asks."""
        path, data = f"{self._base}/stacks/{number}", self.stacks()
        with contextlib.suppress(AllranksError, OSError), self.door.client(_TIMEOUT) as client:
            client.json("PUT", path, data)

    def _begin_anew(self, order: dict[str, Any]) -> None:
        """A server that was started anew may have an older record: it is sent what it lacks."""
        self._server = order["server"]
        self._outbox.acknowledged(order["heard"])
        for file in (*self._tails, *self._feeds):
            file.sure = False
        self._news.set()

    def _ship(self) -> None:
        client = self.door.client(_TIMEOUT)
        while True:
            self._news.wait(LOOK)
            self._news.clear()
            try:
                self._send_events(client)
                while self._send_logs(client):
                    self._send_events(client)
                if time.monotonic() >= self._feed_at:
                    self._feed_at = time.monotonic() + FEED
                    self._send_points(client)
                if (still := self.still) is not None:
                    client.json("PUT", f"{self._base}/still/{self.attempt}", still)
                    self.still = None if self.still is still else self.still
            except (Unauthorized, NotFound):
                self._refused = True
                client.close()
                return
            except (AllranksError, OSError, ValueError, KeyError):
                # Away, or not our server any more: whatever it was, the next try may do.
                client.close()
                time.sleep(AGAIN)
            with self._empty:
                self._empty.notify_all()

    def _send_events(self, client: Client) -> None:
        """Send what the server has not got. It refuses all of a request for one event in it: then
        they are sent one by one, and the one that is refused says less."""
        events = self._outbox.kept()
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

    def _send(self, client: Client, events: Sequence[Event]) -> None:
        path = f"{self._base}/events?now={clock.now()}"
        said = client.json("POST", path, [event._asdict() for event in events])
        self._heard = time.monotonic()
        self._outbox.acknowledged(said["acknowledged"])

    def _send_logs(self, client: Client) -> bool:
        """Send a piece of each log that has grown; whether there may be more at once."""
        more = False
        for tail in self._tails:
            piece, now = tail.rest(), time.monotonic()
            unfinished = b"\n" not in piece and len(piece) < PIECE
            if unfinished and tail.sure and now < tail.due:
                continue
            if piece or not tail.sure:
                tail.due = now + REDRAW if unfinished else 0.0
                path = f"{self._base}/logs/{tail.attempt}/{tail.rank}?offset={tail.sent}"
                self._put(client, tail, path, piece)
                more = more or len(piece) == PIECE
        return more

    def _send_points(self, client: Client) -> None:
        """Send what there is; a feed that is refused keeps no other one back."""
        for feed in list(self._feeds):
            try:
                while (piece := feed.rest()) or not feed.sure:
                    path = f"{self._base}/points/{feed.attempt}/{feed.name}?offset={feed.sent}"
                    self._put(client, feed, path, piece)
                    feed.refused = ""
            except (Unauthorized, NotFound, Unreachable):
                raise
            except AllranksError as error:
                feed.refused = error.message

    def _leave_out(self) -> None:
        """Send no more of what is refused: nothing waits for points for good."""
        for feed in [feed for feed in self._feeds if feed.refused]:
            self._feeds.remove(feed)
            said = f"not all {feed.name} are in the record: {feed.refused}"
            self._outbox.say(Kind.NOTE, feed.attempt, message=said, about="metrics")

    def _put(self, client: Client, file: Tail, path: str, piece: bytes) -> None:
        """Send a piece of a file, and learn how much of it the server has then."""
        file.sure = True  # and no longer, when the server changes while it answers
        try:
            file.sent = json.loads(client.call("PUT", path, piece).body)["size"]
        except BaseException:
            file.sure = False
            raise
        self._heard = time.monotonic()

    def _is_empty(self) -> bool:
        files = (*self._tails, *self._feeds)
        sent = all(file.sure and not file.rest() for file in files)
        return sent and not self._outbox.kept()
