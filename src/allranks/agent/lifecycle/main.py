"""The agent: hello, then attempts of setup, ready, go, run and drain, then bye."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from allranks.agent.channel.channel_opener import ChannelOpener
from allranks.agent.lifecycle import environment, own_disk, unsaved
from allranks.agent.lifecycle.agent_calls import AgentCalls, Leave, Stopped
from allranks.agent.lifecycle.collect_files import KeptFiles
from allranks.agent.lifecycle.environment import Container, Environment, WarmStart
from allranks.agent.lifecycle.local_inputs import LocalInputs
from allranks.agent.lifecycle.node_address import Ports
from allranks.agent.lifecycle.own_disk import OwnDisk
from allranks.agent.lifecycle.parts import Part, Run
from allranks.agent.lifecycle.prepare import Collected
from allranks.agent.lifecycle.reports import Reports
from allranks.agent.lifecycle.saved_state import SavedState
from allranks.agent.lifecycle.shared_home import SharedHome
from allranks.agent.lifecycle.upload import StoredData
from allranks.agent.lifecycle.visitors import Channels, GuestJobs
from allranks.agent.lifecycle.working_folder import Code, WorkingFolder, Workplace
from allranks.agent.network.ports import PortConflict
from allranks.agent.processes import guests
from allranks.agent.processes.keeper import end_descendants
from allranks.agent.supervision.attempt import Attempt, sentence
from allranks.agent.transport.identity import AgentIdentity, with_site
from allranks.agent.transport.inbox import Inbox
from allranks.agent.transport.link import Link, ServerAddress
from allranks.agent.transport.outbox import Outbox
from allranks.core.data.working_set import Held
from allranks.core.packing import pack, unpack
from allranks.core.plan import Task
from allranks.errors import AllranksError, is_passing
from allranks.events import Kind
from allranks.settings import Clocks
from allranks.statuses import Reason
from allranks.version import __version__

if TYPE_CHECKING:
    from allranks.api.agents import Assignment, HelloAnswer


# The folder of the agent's code.
_CODE = Path(__file__).parents[3]


class Agent:
    """Runs one node of a job, from the first answer of the server until bye.

    ``answer`` is the server's to hello: the task, its clocks and what it has of this node. ``run``
    returns when the job is over here.
    """

    def __init__(
        self,
        where: AgentIdentity,
        link: Link,
        outbox: Outbox,
        inbox: Inbox,
        answer: HelloAnswer,
    ) -> None:
        planned = unpack(Task, answer["task"])
        task = guests.with_host_place(own_disk.on_node(planned, where))
        # Modules and prologue change paths of the node, which do not exist in an image.
        if task.container is None and not task.inherits:
            task = task._replace(base=with_site(task.base))
        self._task = task = own_disk.with_home(task, where)
        self._where, self._link = where, link
        self._mlflow = answer["mlflow"]
        self._calls = calls = AgentCalls(where, link, outbox, inbox, Clocks(**answer["clocks"]))
        channels = ChannelOpener(link.server, where.node, where.address, task.job)
        self._working = WorkingFolder(task, calls, unpack(Held, answer["work"]))
        self._files = OwnDisk(task, calls, answer["files"])
        # Begun in this order, and finished in reverse: first the state, which the next attempt
        # needs, and last what the others have put into the record.
        self._parts: tuple[Part, ...] = (
            Channels(calls, channels),
            SharedHome(answer["home"], planned.home, calls),
            Code(self._working, calls),
            self._files,
            LocalInputs(task, planned.home, calls),
            StoredData(calls),
            KeptFiles(calls, self._working.goes_on),
            Collected(calls),
            self._working,
            SavedState(task, calls, answer["state"]),
            Workplace(self._working, planned.home, calls, channels),
            Environment(calls),
            Container(calls, channels),
            Ports(where),
            WarmStart(calls),
            GuestJobs(calls),
            Reports(calls),
        )

    def run(self) -> None:
        calls, link = self._calls, self._link
        link.tick = calls.preparation.look
        link.set_lease(calls.clocks.lease)
        calls.say(Kind.HELLO, pid=os.getpid(), version=__version__)
        link.start()
        try:
            while not self._one_attempt():
                calls.wait_for_next_attempt()
        except Leave:
            end_descendants()
        except Exception as error:
            end_descendants()
            reason, message, hint = _unexpected(error)
            calls.ended(reason, message, hint=hint)
            link.flush(calls.patience)
            raise
        for part in self._parts:
            part.close()
        calls.say(Kind.BYE)
        if link.flush(calls.patience) and not unsaved.is_kept(self._where.folder):
            self._working.remove_agent_folder()

    def _one_attempt(self) -> bool:
        """Run one attempt. Return whether it is the last: if the only node of a job is done, the
        job is, and the agent needs no order to leave."""
        calls, done = self._calls, False
        number = calls.attempt
        run = Run(number, self._task, self._where.folder / f"attempt-{number}")
        with run.closing:
            if self._prepare(run):
                calls.say(Kind.READY, **pack(run.place))
                order = calls.wait_for_go()
                if order["do"] == "go":
                    calls.patience = own_disk.patience(run.task, calls.clocks)
                    done = self._run_ranks(run, order)
                else:
                    calls.ended(Reason(order["why"]), "")
        calls.say(Kind.DRAINED)
        if done and self._task.nodes == 1:
            return True  # BYE travels with it
        if not self._link.flush(calls.patience):
            raise Leave
        calls.patience = calls.clocks.patience
        return False

    def _prepare(self, run: Run) -> bool:
        """Begin all parts. Return whether the ranks can start; if not, the attempt has ended."""
        calls = self._calls
        try:
            for part in self._parts:
                if part.phase is None:
                    part.begin(run)
                else:
                    calls.preparation(part.phase, part.begin, run)
        except Stopped as error:
            calls.ended(error.why, "")
        except (AllranksError, OSError) as error:
            hint = getattr(error, "hint", None) or ""
            is_conflict = isinstance(error, PortConflict)
            reason = Reason.PORT_CONFLICT if is_conflict else Reason.SETUP_FAILED
            # Who reads it is elsewhere.
            text = sentence(error).replace("this node", socket.gethostname())
            calls.ended(reason, text, hint=hint, passing=is_passing(error))
            self._files.finish(run)  # the log of a failed build
        else:
            return True
        return False

    def _run_ranks(self, run: Run, go: Assignment) -> bool:
        """Run the ranks to their end. Return whether all have done their work."""
        calls = self._calls
        run.attempt = attempt = Attempt(
            environment.stage(run, go, calls, self._mlflow),
            calls.inbox,
            calls.clocks,
            calls.order,
            calls.say,
            self._where.end,
        )
        for part in self._parts:
            part.start(run)
        attempt.run(run.begun)
        self._link.begin_silence()
        has_failed = not run.is_done
        if has_failed:  # at once, because the other nodes wait for it
            attempt.report_end()
        unsaved.finish(self._parts, run, calls)
        if not has_failed:
            attempt.report_end()
        return run.is_done


def _unexpected(error: Exception) -> tuple[Reason, str, str]:
    """Why an attempt ended by an error of the agent, in words, and a hint."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, ImportError | FileNotFoundError) and not os.path.exists(__file__):
        message = f"the code that this agent runs from was deleted ({_CODE}): {text}"
        hint = "leave the folder `pinned` of ALLRANKS_HOME to `allranks gc`, and restart the job"
        return Reason.SETUP_FAILED, message, hint
    return Reason.PLATFORM_ERROR, text, ""


def run() -> int:
    """Run an agent configured by environment variables. Return its exit code."""
    try:
        where = AgentIdentity.from_environ(dict(os.environ))
    except (KeyError, ValueError, OSError) as error:
        message = f"allranks agent: {error} is missing or invalid; only engines start agents"
        print(message, file=sys.stderr)
        return 2
    inbox = Inbox()
    signal.signal(signal.SIGTERM, lambda *_: inbox.take(Reason.PREEMPTED))
    # Sent when a rank opens a watched file. Ranks would inherit SIG_IGN, but not a handler.
    signal.signal(signal.SIGIO, lambda *_: None)
    signal.signal(signal.SIGXCPU, lambda *_: inbox.take(Reason.TIME_LIMIT))
    with contextlib.suppress(OSError):  # preparing the first attempt says why it cannot
        where.folder.mkdir(parents=True, exist_ok=True)
    outbox = Outbox(where.folder, where.launch, where.node)
    server = ServerAddress(where.url, where.token, where.fingerprint)
    link = Link(server, where.node, outbox, inbox)
    answer = link.hello(float(os.environ.get("ALLRANKS_AGENT_PATIENCE", "120")), where.own_disk)
    if answer is None:
        if link.trouble:
            print(f"allranks agent: {link.trouble}", file=sys.stderr)
        return 1 if link.trouble else 0
    Agent(where, link, outbox, inbox, answer).run()
    return 0
