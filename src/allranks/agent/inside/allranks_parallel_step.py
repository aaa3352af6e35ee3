"""Runs a parallel step: gives mini-batches of files to the ``run`` of an entry script.

It is sent with the step's code and started once for each process, with the variables of the
distribution `pytorch`. Rank 0 hands out the mini-batches and collects what ``run`` returns; the
others ask it over a socket, by lines of JSON. For any Python from 3.7 on.

    python allranks_parallel_step.py OPTIONS INPUT OUTPUT [MODEL] -- ARGUMENTS OF THE ENTRY SCRIPT

Batch deployments have a model and no threshold of mini-batches but of files; without an entry
script the model is MLflow's. With ``table`` the mini-batches are rows as data frames, with
``partition`` the files whose paths have the same keys.
"""

import os
import sys

from allranks_standard import give_way, standard_modules  # type: ignore[import-not-found,unused-ignore]

with standard_modules():
    import importlib.util
    import inspect
    import io
    import json
    import logging
    import re
    import signal
    import socket
    import tempfile
    import threading
    import time
    import traceback
    import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

# Seconds: to reach rank 0, and between two lines on the progress.
_PATIENCE, _BEAT = 120.0, 10.0
# Files of a failed mini-batch that are named.
_NAMED = 20


def _counted(number, things):  # type: (int, str) -> str
    singular = things[:-2] if things == "mini-batches" else things[:-1]
    return "%d %s" % (number, singular if number == 1 else things)


class Board(object):
    """The mini-batches that are left, and the rows of those that are done. Thread-safe."""

    def __init__(self, batches, threshold, error_threshold=-1, unit="files"):
        # type: (List[List[Any]], int, int, str) -> None
        self._batches, self._threshold = batches, threshold
        self._error_threshold, self._unit = error_threshold, unit
        self._next, self._done, self._failed, self._failed_items = 0, 0, 0, 0
        self.rows = {}  # type: Dict[int, List[str]]
        self.broken = ""
        # The tracebacks of the last mini-batch that failed, and of the one with which the step
        # failed; how another one returned too little.
        self.trace = self.final = self.shortfall = ""
        self._lock = threading.Lock()
        self._reported_at = time.time()

    def take(self):  # type: () -> Optional[Dict[str, Any]]
        """The next mini-batch; None if there is none left, or too many have failed."""
        with self._lock:
            if self.broken or self._next == len(self._batches):
                return None
            self._next += 1
            return {"number": self._next - 1, "items": self._batches[self._next - 1]}

    def finish(self, number, size, rows, failure):
        # type: (int, int, Optional[List[str]], Dict[str, Any]) -> None
        """Record what became of a mini-batch of so many files or rows: its results, or how it
        failed: after so many ``attempts``, ``why``, and the ``trace``."""
        with self._lock:
            self._done += 1
            # Each has a row of its own, or has failed.
            self._failed_items += max(0, size - len(rows or ()))
            if rows is not None and len(rows) < size:
                few = ": run() returned %s for %s"
                self.shortfall = few % (_counted(len(rows), "results"), _counted(size, self._unit))
            if 0 <= self._error_threshold < self._failed_items:
                failed = _counted(self._failed_items, self._unit)
                text = "%s failed; the limit is %d%s"
                self.broken = text % (failed, self._error_threshold, self.shortfall)
            if rows is not None:
                self.rows[number] = rows
            else:
                self._failed += 1
                if 0 <= self._threshold < self._failed:
                    failed = _counted(self._failed, "mini-batches")
                    self.broken = "%s failed; the limit is %d" % (failed, self._threshold)
                tries = _counted(failure["attempts"], "attempts")
                named = names_of(self._batches[number])
                line = "mini-batch %d failed in %s: %s; its files: %s"
                print(line % (number, tries, failure["why"], named), file=sys.stderr, flush=True)
                if self.broken and not self.final:
                    self.final = failure["trace"]  # printed at the end: it is the cause
                else:
                    self.trace = failure["trace"]
                    print(self.trace, end="", file=sys.stderr, flush=True)
            if time.time() - self._reported_at > _BEAT:
                self._reported_at = time.time()
                print("%d of %d mini-batches" % (self._done, len(self._batches)), flush=True)

    def summary(self):  # type: () -> str
        return "%d mini-batches, %d failed" % (self._done, self._failed)


class Remote(object):
    """The board of rank 0, asked over a socket."""

    def __init__(self, job, address, port):  # type: (str, str, int) -> None
        self._job = job
        until = time.time() + _PATIENCE
        while True:
            try:
                self._socket = socket.create_connection((address, port), _PATIENCE)
                break
            except OSError:
                if time.time() > until:
                    raise
                time.sleep(0.05)
        self._socket.settimeout(None)
        self._lines = self._socket.makefile("r", encoding="utf-8")

    def take(self):  # type: () -> Any
        return self._ask({"do": "take"})["batch"]

    def finish(self, number, size, rows, failure):
        # type: (int, int, Optional[List[str]], Dict[str, Any]) -> None
        done = {"number": number, "size": size, "rows": rows, "failure": failure}
        self._ask({"do": "finish", "done": done})

    def _ask(self, message):  # type: (Dict[str, Any]) -> Dict[str, Any]
        message["job"] = self._job
        self._socket.sendall((json.dumps(message) + "\n").encode())
        line = self._lines.readline()
        if not line:
            sys.exit(1)  # rank 0 has ended
        return dict(json.loads(line))


def serve(board, job, port, others):  # type: (Board, str, int, int) -> List[threading.Thread]
    """Answer the other ranks, in a thread for each."""
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        server.bind((os.environ.get("MASTER_ADDR", ""), port))
    except OSError:  # it has this address elsewhere, behind a service or another network
        server.bind(("", port))
    server.listen(others)
    left = threading.Semaphore(0)
    threads = []

    def answer(connection):  # type: (socket.socket) -> None
        batch = None
        with connection, connection.makefile("r", encoding="utf-8") as lines:
            for line in lines:
                try:
                    message = json.loads(line)
                except ValueError:
                    return
                if not isinstance(message, dict) or message.get("job") != job:
                    return  # a stranger
                reply = {}
                if message["do"] == "take":
                    reply["batch"] = batch = board.take()
                    if batch is None:
                        left.release()
                else:
                    board.finish(**message["done"])
                    batch = None
                connection.sendall((json.dumps(reply) + "\n").encode())
        if batch is not None:
            line = "mini-batch %d: the process of its rank ended; its files: %s"
            print(line % (batch["number"], names_of(batch["items"])), file=sys.stderr, flush=True)

    def accept():  # type: () -> None
        while True:
            connection = server.accept()[0]
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    def wait():  # type: () -> None
        for _ in range(others):
            left.acquire()

    threading.Thread(target=accept, daemon=True).start()
    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    threads.append(waiting)
    return threads


def files_of(path):  # type: (str) -> List[str]
    """The files of the input, sorted."""
    if os.path.isfile(path):
        return [path]
    files = []
    for folder, folders, names in os.walk(path):
        folders.sort()
        files += [os.path.join(folder, name) for name in sorted(names)]
    return files


def names_of(items):  # type: (List[Any]) -> str
    """The first files of a mini-batch, and how many there are more."""
    paths = [item if isinstance(item, str) else item[0] for item in items]
    names = ", ".join(map(os.path.basename, paths[:_NAMED]))
    more = len(paths) - _NAMED
    return "%s and %d more" % (names, more) if more > 0 else names


def parse_size(text):  # type: (Any) -> Tuple[int, bool]
    """A size such as `10` or `10kb`, and whether that is in bytes."""
    match = re.match(r"([1-9]\d*) ?(?:([kmg]?)b)?$", str(text).lower())
    if match is None:
        sys.exit("%r is not the size of a mini-batch: give a number, or bytes as in 10kb" % text)
    unit = 1024 ** " kmg".index(match.group(2) or " ")
    return int(match.group(1)) * unit, match.group(2) is not None


def batches_of(files, options):  # type: (List[str], Dict[str, Any]) -> List[List[Any]]
    """Divide the files by partition, table size, bytes or number."""
    if options.get("partition"):
        groups = {}  # type: Dict[Any, List[str]]
        for file in files:
            groups.setdefault(tuple(key_of(file, options["partition"]).items()), []).append(file)
        return [groups[key] for key in sorted(groups)]
    size, is_bytes = parse_size(options["mini_batch_size"])
    if options.get("table"):
        return [[piece] for file in files for piece in pieces_of(file, size, options["table"])]
    if is_bytes:
        return batches_of_bytes(files, size)
    return [files[start : start + size] for start in range(0, len(files), size)]


def key_of(file, partition):  # type: (str, Dict[str, Any]) -> Dict[str, str]
    """The values that the path of a file has for the keys of a partition."""
    match = re.search(partition["pattern"], file)
    if match is None:
        sys.exit("the path of %r has no %s" % (file, ", ".join(partition["names"])))
    return {key: match.group(1 + partition["names"].index(key)) for key in partition["keys"]}


def pieces_of(file, size, table):  # type: (str, int, Dict[str, Any]) -> List[List[Any]]
    """Pieces of a table with about ``size`` bytes of whole lines: its file, begin and end."""
    end = os.path.getsize(file)
    if table["reader"] == "parquet":
        return [[file, 0, end]]
    pieces = []
    with open(file, "rb") as lines:
        start = len(_head(lines, table))
        while start < end:
            lines.seek(min(start + size, end) - 1)
            lines.readline()
            pieces.append([file, start, lines.tell()])
            start = lines.tell()
    return pieces


def _head(file, table):  # type: (Any, Dict[str, Any]) -> bytes
    """The line with the names of the columns, which each piece needs."""
    return bytes(file.readline()) if table["reader"] == "csv" else b""


def read_table(pieces, table):  # type: (List[Any], Dict[str, Any]) -> Any
    """The rows of pieces, or of whole files."""
    # lazy: only for tables
    import pandas  # type: ignore[import-not-found,import-untyped,unused-ignore]

    read, frames = getattr(pandas, "read_" + table["reader"]), []
    for piece in pieces:
        if isinstance(piece, str):
            frames.append(read(piece, **table["options"]))
            continue
        path, start, end = piece
        with open(path, "rb") as file:
            head = _head(file, table)
            file.seek(max(start, len(head)))
            text = head + file.read(end - file.tell())
        frames.append(read(io.BytesIO(text), **table["options"]))
    return pandas.concat(frames, ignore_index=True)


def batches_of_bytes(files, size):  # type: (List[str], int) -> List[List[str]]
    """Mini-batches of files that have at most ``size`` bytes, or are one file."""
    batches, room = [], 0  # type: List[List[str]], int
    for file in files:
        length = os.path.getsize(file)
        if not batches or length > room:
            batches.append([])
            room = size
        batches[-1].append(file)
        room -= length
    return batches


def rows_of(result):  # type: (Any) -> List[str]
    """What ``run`` returned, as lines: a data frame's rows with blanks between the values."""
    if hasattr(result, "to_csv"):
        return str(result.to_csv(sep=" ", header=False, index=False)).splitlines()
    return [str(row) for row in result or ()]


def load(script):  # type: (str) -> Any
    """The entry script as a module."""
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    give_way()
    spec = importlib.util.spec_from_file_location("entry_script", script)
    if spec is None or spec.loader is None:
        sys.exit("the entry script %r cannot be read" % script)
    module = importlib.util.module_from_spec(spec)
    sys.modules["entry_script"] = module
    spec.loader.exec_module(module)
    if not hasattr(module, "run"):
        sys.exit("the entry script %r has no function run(mini_batch)" % script)
    return module


def attempt(run, arguments, seconds):  # type: (Any, List[Any], float) -> List[str]
    """One call of ``run``, which gets some seconds."""

    def late(number, frame):  # type: (int, Any) -> None
        raise TimeoutError("run() took longer than %g s" % seconds)

    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        return rows_of(run(*arguments))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def work(board, run, options):  # type: (Any, Any, Dict[str, Any]) -> None
    """Run mini-batches until none is left."""
    process, end_process = os.getpid(), os._exit
    while True:
        batch = board.take()
        if batch is None:
            os._exit = end_process
            return

        def end(code, batch=batch):  # type: (int, Dict[str, Any]) -> None
            # Children that were forked end by it, too.
            ours = os.getpid() == process
            end_process(exit_code(batch, "os._exit", code) if ours else code)

        os._exit = end  # type: ignore[assignment]
        rows, why, size = None, "", len(batch["items"])
        traces = {}  # type: Dict[Any, str]
        for number in range(1 + options["max_retries"]):
            try:
                arguments = arguments_of(run, batch, options)
                size = len(arguments[0])
                rows = attempt(run, arguments, float(options["timeout"]))
                break
            except SystemExit as ended:
                if ended.code and not isinstance(ended.code, int):
                    # As Python does, but before the line that says what happened.
                    print(ended.code, file=sys.stderr)
                sys.exit(exit_code(batch, "sys.exit", ended.code))
            except Exception as raised:
                trace, why = printed(raised)
                # Each once, whatever numbers its message has.
                traces[type(raised), tuple(traceback.format_tb(raised.__traceback__))] = trace
                if number < options["max_retries"]:
                    line = "mini-batch %d, attempt %d: %s; trying again"
                    print(line % (batch["number"], number + 1, why), file=sys.stderr, flush=True)
        trace = "".join(traces.values())
        if rows is not None and trace:
            line = "mini-batch %d succeeded in attempt %d; before that:\n%s"
            line %= (batch["number"], number + 1, trace)
            print(line, end="", file=sys.stderr, flush=True)
        failure = {"attempts": number + 1, "why": why, "trace": trace}
        board.finish(batch["number"], size, rows, failure)


def exit_code(batch, function, code):  # type: (Dict[str, Any], str, Any) -> int
    """Say that ``run`` ended its process. Even with code 0 this is a failure: mini-batches are
    left."""
    line = "mini-batch %d: run() called %s(%r); its files: %s"
    names = names_of(batch["items"])
    print(line % (batch["number"], function, code, names), file=sys.stderr, flush=True)
    return code if code and isinstance(code, int) else 1


def printed(error):  # type: (BaseException) -> Tuple[str, str]
    """The traceback, and the line of it that names the exception. The further lines of a message
    are indented, so that they are not taken for what was printed after it."""
    own = "".join(traceback.format_exception_only(type(error), error)).splitlines()
    lines = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    before = lines.splitlines()[: -len(own)]
    first = next((n for n, line in enumerate(own) if not line.startswith(" ")), len(own) - 1)
    rest = ["  " + line for line in own[first + 1 :]]
    return "\n".join(before + own[: first + 1] + rest) + "\n", own[first].strip()


def arguments_of(run, batch, options):  # type: (Any, Dict[str, Any], Dict[str, Any]) -> List[Any]
    """The mini-batch, and its context if ``run`` takes a second argument."""
    items, table, partition = batch["items"], options.get("table"), options.get("partition")
    arguments = [read_table(items, table) if table else items]
    if len(inspect.signature(run).parameters) > 1:
        key = key_of(items[0], partition) if partition else {}
        context = {"partition_key_value": key, "minibatch_index": batch["number"], "dataset": None}
        arguments.append(types.SimpleNamespace(**context))
    return arguments


class EntryScript(object):
    """`azureml_user.parallel_run.EntryScript` of Azure's first SDK."""

    working_dir, output_dir, log_dir = ".", "outputs", "logs/user"
    logger = logging.getLogger("entry_script")


def install_entry_script(level):  # type: (str) -> None
    """Let entry scripts find ``EntryScript``."""
    EntryScript.logger.setLevel(level)
    EntryScript.logger.addHandler(logging.StreamHandler())
    for name in ("azureml_user", "azureml_user.parallel_run"):
        module = types.ModuleType(name)  # type: Any
        module.EntryScript = EntryScript
        sys.modules.setdefault(name, module)


def mlflow_model(path):  # type: (str) -> Any
    """What stands for the entry script of a model of MLflow's."""
    with standard_modules():
        # lazy: it needs Python 3.8, and few steps have no script
        from allranks_scoring import batch  # type: ignore[import-not-found,unused-ignore]

    return batch.Mlflow(path)


def main():  # type: () -> None
    options = json.loads(sys.argv[1])
    end = sys.argv.index("--")
    data, output = sys.argv[2:4]
    model = sys.argv[4] if end > 4 else ""
    sys.argv = [options["entry_script"] or "", *sys.argv[end + 1 :]]
    if model:
        with standard_modules():
            # lazy: few steps have a model
            import allranks_model_folder  # type: ignore[import-not-found,unused-ignore]

        name = os.environ.get("ALLRANKS_MODEL_NAME", "")
        os.environ["AZUREML_MODEL_DIR"] = allranks_model_folder.make(model, name)
    if "file_name" in options:  # where scripts of batch deployments write files of their own
        os.environ["AZUREML_BI_OUTPUT_PATH"] = output
    rank = int(os.environ["RANK"])
    world = int(os.environ["WORLD_SIZE"])
    # What the ranks know of one another, and nobody else; agents of 0.1.0 give only the name.
    job = os.environ.pop("ALLRANKS_STEP_SECRET", "") or os.environ["ALLRANKS_JOB"]
    port = int(os.environ["MASTER_PORT"])
    waiting = []
    if rank == 0:
        files = files_of(data)
        if not files and "file_name" in options:
            sys.exit("the input of the batch endpoint has no files")
        batches = batches_of(files, options)
        threshold = int(options.get("error_threshold", -1))
        unit = "rows" if options.get("table") else "files"
        board = Board(batches, options["mini_batch_error_threshold"], threshold, unit)  # type: Any
        waiting = serve(board, job, port, world - 1) if world > 1 else []
        print("%d files in %d mini-batches" % (len(files), len(batches)), flush=True)
    else:
        board = Remote(job, os.environ["MASTER_ADDR"], port)
    if "logging_level" in options:
        install_entry_script(options["logging_level"])
    module = load(options["entry_script"]) if options["entry_script"] else mlflow_model(model)
    if hasattr(module, "init"):
        module.init()
    work(board, module.run, options)
    if hasattr(module, "shutdown"):
        module.shutdown()
    for thread in waiting:
        thread.join()
    if rank > 0:
        return
    print(board.summary(), flush=True)
    if board.broken:
        trace = (board.final or board.trace).rstrip()
        sys.exit("%s\n%s" % (board.broken, trace) if trace else board.broken)
    name = options.get("file_name", "parallel_run_step.txt")
    if output and name is not None:
        where = os.path.join(output, name) if os.path.isdir(output) else output
        with open(where, "w", encoding="utf-8") as file:
            for number in sorted(board.rows):
                file.writelines(row + "\n" for row in board.rows[number])


if __name__ == "__main__":
    main()
