"""The agent: hello, then attempts of setup, ready, go, run and drain, then bye."""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allranks import disk_space, folder_trees
from allranks.agent.channel.channel_opener import ChannelOpener
from allranks.agent.environments import current_python, installed_frameworks
from allranks.agent.launch import mlflow_address, tracker_variables
from allranks.agent.launch.stage import Stage
from allranks.agent.launch.start_ranks import with_sitecustomize
from allranks.agent.lifecycle import collect_files, node_address, output_disks, own_disk, unsaved
from allranks.agent.lifecycle.attempt import Attempt, sentence
from allranks.agent.lifecycle.interrupted_waits import Leave, Stopped
from allranks.agent.lifecycle.local_inputs import LocalInputs
from allranks.agent.lifecycle.own_disk import OwnDisk
from allranks.agent.lifecycle.phases import Preparation
from allranks.agent.lifecycle.prepare import Work, collect, command_of, prepare
from allranks.agent.lifecycle.shared_home import require_home
from allranks.agent.lifecycle.unsaved import AgentCalls
from allranks.agent.lifecycle.upload import upload
from allranks.agent.lifecycle.working_folder import WorkingFolder
from allranks.agent.monitoring.attempt_reports import AttemptReports
from allranks.agent.network import ports
from allranks.agent.network.ports import PortConflict
from allranks.agent.processes import guests
from allranks.agent.processes.guests import Guests
from allranks.agent.processes.hold import FOLDER
from allranks.agent.processes.keeper import end_descendants
from allranks.agent.state.state_folder import State, state_folder
from allranks.agent.transport.identity import AgentIdentity, networks, with_site
from allranks.agent.transport.inbox import Inbox
from allranks.agent.transport.link import Link, ServerAddress
from allranks.agent.transport.outbox import Outbox
from allranks.core.data.working_set import Held
from allranks.core.distributions import rank_variables, topology
from allranks.core.distributions.topology import Rank
from allranks.core.environments import warm_start
from allranks.core.environments.activation import is_made_for
from allranks.core.job import code_packages
from allranks.core.lifecycle.phases import Phase
from allranks.core.packing import pack, unpack
from allranks.core.plan import Interpreter, Place, Task
from allranks.errors import AllranksError, is_passing
from allranks.events import SERVICE, Kind
from allranks.settings import Clocks
from allranks.statuses import Reason

if TYPE_CHECKING:
    from allranks.agent.data.transfers import Transfers
    from allranks.agent.environments.job_environment import Prepared
    from allranks.agent.environments.node_container import NodeContainer
    from allranks.agent.launch.warm_ranks import WarmRanks
    from allranks.api.agents import Assignment, HelloAnswer
    from allranks.core.data.addresses import Account

# Seconds for a guest to send its last data, beside its grace.
_TO_LEAVE = 5.0


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
        self._where = where
        self._link = link
        self._outbox = outbox
        self._inbox = inbox
        self._attempt = link.attempt
        planned = unpack(Task, answer["task"])
        task = guests.with_host_place(own_disk.on_node(planned, where))
        # Modules and prologue change paths of the node, which do not exist in an image.
        if task.container is None and not task.inherits:
            task = task._replace(base=with_site(task.base))
        self._task = own_disk.with_home(task, where)
        self._original_task = self._task
        self._clocks = Clocks(**answer["clocks"])
        self._patience = self._clocks.patience
        self._mlflow = answer["mlflow"]
        self._home, self._server_home = answer["home"], planned.home
        self._network: dict[str, str] = {}
        # Names of the ports that the user fixes, held so that no other job of the host uses them.
        self._claimed: list[socket.socket] = []
        self._tensorflow: tuple[int, int] | None = None
        self._python: Interpreter | None = None
        # Why the last changes of the state are not saved, and what saving waits for, if they are.
        self._unsaved = self._waits_for = ""
        self._in = Preparation(partial(self._say, Kind.NOTE))
        # Once for all ranks and attempts.
        self._cold = cache(lambda why: self._note(f"ranks start cold: {why}", {"about": "warm"}))
        self._state = State(
            state_folder(where),
            where,
            link.server,
            alone=task.nodes == 1,
            pace=self._clocks.look,
            known=answer["state"],
            note=partial(self._note, facts={"about": "state"}),
            warn=partial(self._note, facts={"about": "checkpoint"}),
        )
        self._channels = ChannelOpener(link.server, where.node, where.address, task.job)
        self._channels.env = lambda: {**self._task.base, **self._task.variables}
        link.channel = self._channels.open
        link.guests = self._guests = Guests(where)
        self._calls = AgentCalls(
            grace=self._clocks.grace,
            order=self._order,
            wait=self._wait_a_while,
            unsent=self._clocks.unsent,
            waits=self._waits,
            note=self._note,
            make_space=self._make_space,
        )
        self._files = OwnDisk(
            task,
            where,
            link.server,
            pace=self._clocks.look,
            known=answer["files"],
            calls=self._calls,
        )
        self._inputs = LocalInputs(self._task, planned.home, where, link.server, self._calls)
        self._working = WorkingFolder(
            self._task,
            where,
            link.server,
            pace=self._clocks.look,
            held=unpack(Held, answer["work"]),
            calls=self._calls,
        )

    def run(self) -> None:
        self._link.tick = self._in.look
        self._link.set_lease(self._clocks.lease)
        self._say(Kind.HELLO, pid=os.getpid())
        self._link.start()
        try:
            while not self._one_attempt():
                self._attempt = self._next_attempt()
        except Leave:
            end_descendants()
        except Exception as error:
            end_descendants()
            self._ended(Reason.PLATFORM_ERROR, f"{type(error).__name__}: {error}")
            self._link.flush(self._patience)
            raise
        if self._unsaved:  # the last changes of a state of a job that has failed
            kept = unsaved.keep(self._state.root, self._task, self._where)
            self._note(f"{self._unsaved}{kept}", {"about": "unsaved"})
        self._inputs.close()
        self._say(Kind.BYE)
        if self._link.flush(self._patience) and not unsaved.is_kept(self._where.folder):
            self._working.remove_agent_folder()

    def _one_attempt(self) -> bool:
        """Run one attempt. Return whether it is the last: if the only node of a job is done, the
        job is, and the agent needs no order to leave."""
        done = False
        folder = self._where.folder / f"attempt-{self._attempt}"
        held: list[socket.socket] = []
        container = data = warm = None
        self._channels.cwd = self._where.folder
        self._channels.waits_for_container = self._task.container is not None
        try:
            if self._home is not None and not self._task.sends_files:
                require_home(self._home, self._where.node)
                self._home = None  # later servers have marks of their own
            output_disks.require_outside(self._task, self._server_home)
            code = self._in(Phase.CODE, self._fetch_code, folder)
            wait = partial(self._or_stop, None)
            self._in(Phase.DATA, self._files.begin, self._attempt, wait, self._in.doing)
            self._in(Phase.DATA, self._provide_inputs, wait)
            data = self._data(folder)
            data_paths = {} if data is None else self._in(Phase.DATA, self._data_paths, data)
            elsewhere = self._state.paths | data_paths
            self._in(Phase.STATE, self._begin_state, wait)
            collect_files.set_aside(self._task, self._where.node, self._attempt)
            self._in(Phase.STATE, self._working.begin, self._attempt, code, wait, self._in.doing)
            laid_out = self._working.laid_out
            work = prepare(self._task, folder, laid_out, time.time(), elsewhere, self._heed)
            output_disks.note_unseen(
                self._task, self._server_home, self._where, self._link.server, self._calls
            )
            self._channels.cwd = work.folder
            self._in(Phase.ENVIRONMENT, self._environment, work, folder)
            container = self._in(Phase.IMAGE, self._container, folder)
            self._channels.container, self._channels.waits_for_container = container, False
            held = node_address.reserve_ports(self._task, self._where)
            self._claimed = node_address.claim_fixed_ports(self._task, self._where.node)
            warm = self._in(Phase.ENVIRONMENT, self._warm, work, folder, held)
        except Stopped as error:
            self._ended(error.why, "")
        except (AllranksError, OSError) as error:
            hint = getattr(error, "hint", None) or ""
            is_conflict = isinstance(error, PortConflict)
            reason = Reason.PORT_CONFLICT if is_conflict else Reason.SETUP_FAILED
            # Who reads it is elsewhere.
            text = sentence(error).replace("this node", socket.gethostname())
            self._ended(reason, text, hint=hint, passing=is_passing(error))
            self._files.finish()  # the log of a failed build
        else:
            place = node_address.place(self._where, held)._replace(python=self._python)
            self._guests.open(work.folder, self._task)
            self._say(Kind.READY, **pack(place))
            order = self._wait_for_go()
            if order["do"] == "go":
                self._patience = own_disk.patience(self._task, self._clocks)
                done = self._run_ranks(work, folder, held, order, container, data, warm)
            else:
                self._ended(Reason(order["why"]), "")
        finally:
            self._guests.close(self._clocks.grace)
            self._channels.leave()
            ports.release(held)
            ports.release(self._claimed)
            for resource in (container, data, warm):
                if resource is not None:
                    resource.close()
        self._say(Kind.DRAINED)
        if done and self._task.nodes == 1:
            return True  # BYE travels with it
        if not self._link.flush(self._patience):
            raise Leave
        self._patience = self._clocks.patience
        return False

    def _provide_inputs(self, wait: Callable[[float], None]) -> None:
        self._task = self._inputs.provide(self._task, wait, self._in.doing)
        self._original_task = self._inputs.provide(self._original_task, wait, self._in.doing)

    def _begin_state(self, wait: Callable[[float], None]) -> None:
        node, nodes = self._where.node, self._task.nodes
        # All nodes see the same files.
        sizes = {nodes, topology.world(self._task)} if node == 0 else set[int]()
        self._state.begin(self._attempt, wait, self._in.doing, sizes)

    def _data(self, folder: Path) -> Transfers | None:
        """The transfers of the job's data, if any of it is in datastores."""
        if not self._task.moves_data:
            return None
        from allranks.agent.data.transfers import Transfers  # lazy: many jobs have none

        return Transfers(
            self._task, self._where.node, folder, self._account, self._or_stop, self._in.doing
        )

    def _account(self, datastore: str) -> Account:
        return self._link.account(datastore, self._patience)

    def _data_paths(self, data: Transfers) -> dict[str, str]:
        """Provide inputs and outputs in datastores. Return their local paths by key."""
        inputs = {f"inputs.{name}": path for name, path in data.provide(self._note).items()}
        return inputs | {f"outputs.{name}": path for name, path in data.begin().items()}

    def _environment(self, work: Work, folder: Path) -> None:
        """Prepare the virtual environment of the ranks, if they get one of their own."""
        if self._original_task.container is not None:
            return
        wheels = (work.imports or folder).with_name(code_packages.WHEELS)
        self._task = task = current_python.for_this_node(self._original_task, wheels)
        self._python = current_python.interpreter({**task.base, **task.variables})
        if not is_made_for(task):
            return
        from allranks.agent.environments import job_environment  # lazy: few jobs need one

        node = self._where.node
        prepared = job_environment.prepare(task, node, folder, self._or_stop, self._in.doing)
        self._use(task, prepared)
        if prepared.packages is not None:
            env = {**prepared.base, **prepared.variables}
            self._python = current_python.interpreter(env, prepared.packages)

    def _use(self, task: Task, prepared: Prepared) -> None:
        self._task = task._replace(base=prepared.base, variables=prepared.variables)
        self._tensorflow = prepared.tensorflow

    def _container(self, folder: Path) -> NodeContainer | None:
        """Start the container in which the ranks run, if the job has one."""
        if self._task.container is None:
            return None
        from allranks.agent.environments import image_environments  # lazy: few jobs have one

        node, gang = self._where.node, os.environ.get("ALLRANKS_GANG", self._task.job)
        gang = os.environ.get(guests.NAME, gang)  # its host's container has the gang's name
        name = f"allranks-{gang}-{node}-{self._attempt}"
        container, prepared = image_environments.open_container(
            self._original_task, node, name, folder, self._or_stop, self._in.doing
        )
        self._use(self._original_task, prepared)
        return container

    def _warm(self, work: Work, folder: Path, held: list[socket.socket]) -> WarmRanks | None:
        """Connect to a server that has imported the modules of ``warm``, if the job names any."""
        if not self._task.warm:
            return None
        from allranks.agent.launch import warm_ranks  # lazy: few jobs start warm

        # Addresses and ports are not known yet; what modules read while they are imported is.
        every = range(self._task.nodes)
        ports = (0,) * max(topology.ports_needed(self._task, node) for node in every)
        places = (node_address.place(self._where, held)._replace(ports=ports),) * len(every)
        rank = Rank(0, self._where.node, 0)
        env = with_sitecustomize(
            self._env(rank, work, folder, places, {"do": "go", "started": 0.0})
        )
        try:
            where = warm_ranks.Where(self._where.folder, folder, work.folder)
            return warm_ranks.prepare(
                self._task, command_of(self._task, work), env, where, self._or_stop, self._in.doing
            )
        except warm_start.Cold as why:
            self._cold(str(why))
            return None

    def _or_stop(
        self,
        fd: int | None = None,
        seconds: float | None = None,
        heeds: Callable[[Assignment], bool] = lambda order: True,
    ) -> None:
        """Wait until ``fd`` is readable, for ``seconds`` at most. Raises Stopped if the server
        stops the attempt with an order that ``heeds`` accepts, Leave if it is unreachable for too
        long."""
        fds = [] if fd is None else [fd]
        until = math.inf if seconds is None else time.monotonic() + seconds
        while not select.select(fds, [], [], 0.0)[0] and time.monotonic() < until:
            self._heed(heeds)
            self._wait_a_while(min(1.0, max(0.0, until - time.monotonic())), fds)

    def _heed(self, heeds: Callable[[Assignment], bool] = lambda order: True) -> None:
        order = self._order()
        if order["do"] == "stop" and heeds(order):
            raise Stopped(Reason(order["why"]))

    def _fetch_code(self, folder: Path) -> Path | None:
        folder_trees.remove(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if self._task.code is None or self._working.stays:
            return None
        archive = folder / "code.tar"
        self._link.fetch_code(self._task.code, archive, self._patience)
        return archive

    def _wait_for_go(self) -> Assignment:
        """Wait at the gate for the `go` or `stop` of this attempt."""
        while (order := self._order())["do"] not in ("go", "stop"):
            self._wait_a_while()
        return order

    def _next_attempt(self) -> int:
        while True:
            order = self._inbox.order
            if order["do"] == "leave":
                raise Leave
            if order["attempt"] > self._attempt:
                # Any order of it, because a later one may already have replaced `prepare`.
                return int(order["attempt"])
            self._wait_a_while()

    def _wait_a_while(self, seconds: float = 1.0, fds: Sequence[int] = ()) -> None:
        self._inbox.wait(seconds, fds)
        if self._link.silent_for() > self._patience:
            raise Leave

    def _order(self) -> Assignment:
        """The current order for this attempt. Raises Leave if the server dismisses the agent."""
        if self._inbox.taken:
            return {"do": "stop", "why": self._inbox.taken}
        order = self._inbox.order
        if order["do"] == "leave":
            raise Leave
        return order if order["attempt"] == self._attempt else {"do": "wait"}

    def _run_ranks(
        self,
        work: Work,
        folder: Path,
        held: list[socket.socket],
        go: Assignment,
        container: NodeContainer | None,
        data: Transfers | None,
        warm: WarmRanks | None,
    ) -> bool:
        """Run the ranks to their end. Return whether all have done their work."""
        places = tuple(unpack(Place, fields) for fields in go["places"])
        self._network = networks(self._where.address, places)
        self._network |= mlflow_address.variables(self._where, self._mlflow)
        attempt = Attempt(
            Stage(
                task=self._task,
                node=self._where.node,
                folder=folder,
                cwd=work.folder,
                command=command_of(self._task, work),
                places=places,
                held=held,
                secret=self._secret,
                env=lambda rank: self._env(rank, work, folder, places, go),
                container=container,
                warm=warm,
                note=self._cold,
            ),
            self._inbox,
            self._clocks,
            self._order,
            self._say,
            self._where.end,
        )
        self._channels.started, self._channels.held = attempt.started, folder / FOLDER
        others = tracker_variables.folders(self._task, work.paths, folder)
        reports = AttemptReports(
            self._task, self._attempt, folder, work.folder, self._link, others, self._clocks.pace
        )
        attempt.before_stopping = reports.keep_stacks
        attempt.when_released = self._channels.leave
        self._state.start(attempt.deaths)
        self._files.start()
        self._working.start(self._attempt, attempt.deaths)
        limit = None
        if self._where.memory is not None:
            from allranks.agent.monitoring.memory_limit import MemoryLimit  # lazy: rare

            limit = MemoryLimit(self._where.memory, attempt.exceed)
        begin = partial(reports.begin, roots=attempt.pids, limit=limit, met=attempt.met)
        attempt.run(partial(self._begun, begin, folder, work.folder))
        ports.release(self._claimed)  # another job may use them while files are sent
        reports.over()
        done = attempt.reason is Reason.DONE
        if not done:  # report a failure at once, because the other nodes wait for it
            attempt.report_end()
        self._guests.close(self._clocks.grace + _TO_LEAVE)
        self._save_state(attempt)
        self._working.finish(self._attempt, done)
        self._collect(work, attempt)
        self._keep(work, attempt)  # after the state, which the next attempt needs
        if data is not None:
            upload(data, attempt, self._or_stop, self._calls)
        self._files.finish(attempt)
        if done:
            attempt.report_end()
        for note in reports.finish():
            self._say(Kind.NOTE, **note)
        return attempt.reason is Reason.DONE

    def _begun(
        self,
        begin: Callable[[Mapping[int, Path]], None],
        folder: Path,
        cwd: Path,
        logs: Mapping[int, Path],
    ) -> None:
        """The ranks run: begin their reports, and the services beside them."""
        begin(logs)
        node = self._where.node
        services = [each for each in self._task.services if each.everywhere or node == 0]
        if services:
            from allranks.agent.channel.services import Services  # lazy: few jobs have some

            Services(self._channels, folder, self._say_service).begin(services, cwd)

    def _say_service(self, name: str, state: str, message: str) -> None:
        self._say(Kind.NOTE, about=SERVICE, service=name, state=state, message=message)

    def _secret(self) -> str:
        """The secret of this attempt, the same on all its nodes."""
        from allranks.agent.programs import remote_shell  # lazy: OpenSSL, and few jobs need it

        return remote_shell.secret(self._where.token, self._attempt)

    def _save_state(self, attempt: Attempt) -> None:
        """Save the rest of the state; a successful attempt that cannot has failed."""
        done = attempt.reason is Reason.DONE
        save = partial(self._state.finish, done, *self._calls[:3])
        why = unsaved.with_room(save, attempt, self._calls)
        self._unsaved = f"not all of the state folder is saved: {why}" if why else ""
        if why and done:
            kept = unsaved.keep(self._state.root, self._task, self._where)
            unsaved.fail(attempt, self._calls, f"{self._unsaved}{kept}")
            self._unsaved = ""

    def _collect(self, work: Work, attempt: Attempt) -> None:
        """Copy the outputs of an in-place job to the record."""
        why = unsaved.with_room(
            lambda: collect(self._task, self._where.node, work), attempt, self._calls
        )
        if why:
            unsaved.fail(attempt, self._calls, f"{why}; they are still in {work.folder}")

    def _keep(self, work: Work, attempt: Attempt) -> None:
        """Put new files of the working folder into the record. They stay where they are, too, as
        long as another attempt may need them."""
        task, node, before = self._task, self._where.node, work.laid_out
        stay = task.nodes > 1 or attempt.reason is not Reason.DONE
        goes_on = -1 if attempt.reason is Reason.DONE else self._working.goes_on
        until = collect_files.Deadline(self._order, self._clocks.grace)
        notes = list[dict[str, Any]]()

        def save() -> str:
            note = collect_files.keep_and_describe(
                task,
                node,
                work.folder,
                before,
                until,
                attempt=self._attempt,
                stay=stay,
                goes_on=goes_on,
            )
            if note is None:
                return ""
            if notes and (stay or not notes[-1]["files"]):
                notes.pop()  # it is in this note, too, or nothing had space
            notes.append(note)
            return collect_files.disk_error(note)

        why = unsaved.with_room(save, attempt, self._calls)
        for note in notes:  # the record adds them up
            is_last = note is notes[-1]
            self._say(Kind.NOTE, **(note if is_last else {**note, "left_out": []}))
        if why and attempt.reason is Reason.DONE:
            kept = unsaved.keep(work.folder, task, self._where)
            unsaved.fail(
                attempt, self._calls, f"not all of the working folder is saved: {why}{kept}"
            )

    def _env(
        self, rank: Rank, work: Work, folder: Path, places: Sequence[Place], go: Assignment
    ) -> dict[str, str]:
        task = self._task
        gpus = [gpu for gpu in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]
        of_node = rank_variables.of_node(task, rank.node, self._where.cpus, gpus) | self._network
        end, grace = self._where.end, self._clocks.grace
        of_node |= rank_variables.of_attempt(task, self._attempt, go, end, grace, str(folder))
        env = rank_variables.whole_environment(task, rank, places, work.paths, of_node)
        if task.distribution == "tensorflow" and "TF_CONFIG" not in task.variables:
            own = task.container or is_made_for(task)
            version = self._tensorflow if own else installed_frameworks.tensorflow(env)
            if installed_frameworks.breaks_on_empty_ps(version):
                env = rank_variables.without_empty_ps(env)
        env |= tracker_variables.variables(env, work.folder)
        if work.imports is not None:
            env["ALLRANKS_IMPORTS"] = str(work.imports)
        # Last, so that the user cannot override it: leftovers of a dead gang are found by it.
        env["ALLRANKS_GANG"] = os.environ.get("ALLRANKS_GANG", "")
        return env

    # ------------------------------------------------------------ events

    def _note(self, message: str, facts: Mapping[str, Any]) -> None:
        self._say(Kind.NOTE, message=message, **facts)

    def _make_space(self) -> None:
        if not self._task.sends_files:
            disk_space.release_if_full(Path(self._task.record).parent.parent)

    def _waits(self, what: str) -> None:
        """Report once what saving waits for; '' for nothing."""
        if what != self._waits_for:
            self._waits_for = what
            self._say(Kind.NOTE, doing=what, message=what or "there is space", about="unsaved")

    def _say(self, kind: Kind, rank: int | None = None, **data: Any) -> None:
        if self._outbox.say(kind, self._attempt, rank=rank, **data):
            self._link.wake()

    def _ended(self, reason: Reason, message: str, rank: int | None = None, **data: Any) -> None:
        self._say(Kind.ENDED, rank, reason=reason, message=message, **data)


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
