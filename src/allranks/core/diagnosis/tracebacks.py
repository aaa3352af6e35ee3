"""Python tracebacks in the log of a rank, and which of them ended it. Pure; linear in the lines.

Torch, mpirun and Ray prefix lines with a mark, by which processes that share a log are told apart.
A traceback that the program survived does not explain its end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_MARK = re.compile(
    r"(?:\[rank(\d+)\]:|\[\d+,(\d+)\]<std(?:err|out)>:|\(([\w.=, ]*pid=\d+[^)]*)\)) ?"
)
_HEAD = "Traceback (most recent call last):"
_FRAME = re.compile(r'\s+File "([^"]+)", line (\d+)(?:, in (.+))?$')
# The first line of IPython's tracebacks, the lines of their frames, and the line of code in one.
_IPYTHON_HEAD = re.compile(r"([A-Za-z_][\w.]*) +Traceback \(most recent call last\)$")
_IPYTHON_FRAME = re.compile(r"(?:File )?([^\s:][^:]*?)(?::\d+)?,? in (<?[\w.]+>?)")
_IPYTHON_LINES = 500
_IPYTHON_CODE = re.compile(r"-+> ?(\d+) ?(.*)")
_NAMED = re.compile(r"([A-Za-z_](?:\w|\.|<locals>)*)(?:: ?(.*))?$")
_LINKS = {
    "The above exception was the direct cause of the following exception:": "cause",
    "During handling of the above exception, another exception occurred:": "context",
}
# The line of an exception whose traceback lies outside the lines.
_ALONE = re.compile(r"([\w.]*(?:Error|Exception|Interrupt|Exit|Group))(?:: ?(.*))?$")
# Messages are read up to so many lines.
_LINES = 24
# The lines that Python draws around exception groups.
_DRAWN = re.compile(r"^\s*(?:\+-[+-]*|[|+]) ?")

# Output of other threads and of launchers during and after the shutdown of a program.
_NOISE = re.compile(
    r"\s|[IWEF]\d{4}|\[[IWEF]\d* |\[W|WARNING|Warning|.*Warning:|terminate called|wandb:|srun: |"
    r"slurmstepd|-{5,}|={5,}|\*{5,}|MPI_ABORT|mpirun |mpiexec |prterun |Primary job|Per user|"
    r"a non-zero|with errorcode|NOTE: |You may or may not|exactly when|\[[\w.-]+:\d+\]|"
    r"Process name|Exit code|Exception ignored|Error in atexit|\w+: Error (while|in)|sys:1|"
    r"Exception raised from|frame #\d+|For debugging|Compile with|CUDA kernel errors|Device-side|"
    r"If this call came|\w+ process group|libc\+\+abi|#+ |\[E\d|destroy_process_group|"
    r"\d{4}-\d\d-\d\d [\d:.]+: [IWEF] |\d{4}-\d\d-\d\d .*(destroy|shut|stopp|clos|clean)|"
    r"make: \*\*\*|Aborted|Killed|proc |Set the environment variable HYDRA|(🏃|🧪) View |"
    r"(?i:(?:closing|flush(?:ing|ed)|shut(?:ting)? ?down|cleaning|stopping|destroying|tearing)\b)|"
    r"\d+\+\d+ records |\d+ bytes |"
    r"\[notice\] |\w{3} \w{3} +\d+ [\d:]{8} |"
    r".*\b(?:rc|(?i:exit(?:ed|ing)?|(?:exit|return)[ _]?(?:code|status)))\b\W*(?:\w+\W+){0,3}\d+"
    r"\W*$"
)
# Closing a progress bar prints it once more, unchanged.
_BAR = re.compile(r".*\d%\|.*\| \d+/\d+ ")
# So many lines may belong to an exception's message, unless its end is marked as in _ENDS.
_OWN_LINES = 8
_ENDS = {
    "ChildFailedError": "=====",
    "UnpicklingError": "Check the documentation of torch.load",
    "OperationalError": "(Background on this error at: ",  # SQLAlchemy
    "ValidationError": "    For further information visit",
}
# Messages of Python that have one line: what follows is other output. Libraries raise some of these
# types, too; Python's own AttributeError ends with a name or a question.
_ONE_LINE = re.compile(
    r"(?:ModuleNotFound|Key|Index|Name|UnboundLocal|ZeroDivision|Recursion|Unicode\w+|"
    r"JSONDecode|EOF)Error\b|AttributeError: [^\n]*['?](?:\n|$)|"
    r"ImportError: cannot import name |KeyboardInterrupt$|"
    r"\w*Error: \[Errno -?\d|RuntimeError: (?:No CUDA GPUs|Found no NVIDIA)"
)
# Typical beginnings of progress output, rare in error messages.
_AT_WORK = re.compile(
    r"\W*(?:epoch|step|iter(?:ation)?|batch|train(?:ing|ed)?|eval\w*|valid(?:ation|ating)|loss|"
    r"start(?:ing|ed)?|resum(?:ing|ed)|continu(?:ing|ed)|falling|going|saved|saving|done)\b",
    re.IGNORECASE,
)
_BEGINNING = re.compile(r"\W*([^\W\d]+|\d)")
# Code of packages, of Python, and of what runs entry scripts.
_NOT_USER_CODE = re.compile(
    r"/(?:site|dist)-packages/|/lib/python\d|<frozen |<string>|^<__array"
    r"|/allranks_parallel_step\.py$"
)


class Frame(NamedTuple):
    file: str
    line: int
    function: str
    source: str


class Raised(NamedTuple):
    """A printed exception: ``name`` without its module, ``text`` its message, ``at`` the index of
    its line, ``end`` that of the message's last. ``link`` relates it to the exception before it:
    `cause`, `context` or empty. ``stream`` identifies the process within a shared log. ``aside``:
    raised in a thread or ignored, so that it cannot have ended the program."""

    name: str
    text: str
    at: int
    end: int
    frames: tuple[Frame, ...]
    link: str = ""
    stream: str = ""
    aside: bool = False

    @property
    def printed(self) -> str:
        """Name and message as Python prints them."""
        return f"{self.name}: {self.text}" if self.text else self.name

    @property
    def was_caught(self) -> bool:
        """Whether a function of the user caught it: a traceback starts where it was caught, and
        that of an uncaught exception at the module that was started."""
        first = self.frames[0] if self.frames else Frame("", 0, "", "")
        return is_user_code(first.file) and first.function not in ("", "<module>")


def is_user_code(file: str) -> bool:
    return not _NOT_USER_CODE.search(file)


class _Line(NamedTuple):
    at: int
    text: str


def unmarked(line: str) -> tuple[str, str]:
    """The process that a line is marked with (empty if none), and the line without the mark."""
    mark = _MARK.match(line)
    if mark is None:
        return "", line
    return next(filter(None, mark.groups()), ""), line[mark.end() :]


def raised(lines: Sequence[str]) -> list[Raised]:
    """Every exception that has a traceback, in the order of lines."""
    streams: dict[str, list[_Line]] = {}
    for at, line in enumerate(lines):
        stream, text = unmarked(line)
        streams.setdefault(stream, []).append(_Line(at, text))
    exceptions = [exception for name, own in streams.items() for exception in _of_stream(name, own)]
    return sorted(exceptions, key=lambda exception: exception.at)


def _of_stream(stream: str, lines: Sequence[_Line]) -> Iterator[Raised]:
    index, link, before = 0, "", ""
    while index < len(lines):
        text = lines[index].text
        plain = _DRAWN.sub("", text).strip()
        is_head = plain.endswith(_HEAD) and not plain.startswith(("'", "During"))
        if (ipython := _IPYTHON_HEAD.match(plain)) and (
            block := _ipython_block(stream, lines, index + 1, ipython[1])
        ):
            yield block[0]
            index, link, before = block[1], "", ""
            continue
        # Syntax errors have no head line.
        if is_head or _is_syntax_error(lines, index):
            block = _block(stream, lines, index + is_head, link, _is_aside(before, plain))
            if block is not None:
                index, link, before = block[1], "", ""
                # Cython prints what it ignores, says so, and prints it again.
                ignored = index < len(lines) and lines[index].text.startswith("Exception ignored")
                yield block[0]._replace(aside=True) if ignored else block[0]
                continue
        if plain in _LINKS:
            link = _LINKS[plain]
        elif plain and plain != '"""' and not is_head:
            link = ""
        before = plain or before
        index += 1


def _is_syntax_error(lines: Sequence[_Line], index: int) -> bool:
    frame = _FRAME.match(lines[index].text)
    if frame is None or frame[3]:
        return False
    after = [line.text for line in lines[index + 1 : index + 4]]
    return any(re.match(r"(\w*SyntaxError|IndentationError|TabError)\b", text) for text in after)


def _is_aside(before: str, head: str) -> bool:
    return before.startswith(("Exception in thread", "Exception ignored", "Error in atexit")) or (
        head.startswith(("Exception ignored", "Error in"))
    )


def _block(
    stream: str, lines: Sequence[_Line], index: int, link: str, aside: bool
) -> tuple[Raised, int] | None:
    frames: list[Frame] = []
    while index < len(lines):
        text = undrawn(lines[index].text)
        if match := _FRAME.match(text):
            source = undrawn(lines[index + 1].text) if index + 1 < len(lines) else ""
            if not source.startswith("    ") or _FRAME.match(source):
                source = ""
            frames.append(Frame(match[1], int(match[2]), match[3] or "", source.strip()))
        elif text and not text[0].isspace():
            break
        index += 1
    else:
        return None
    named = _NAMED.match(undrawn(lines[index].text).rstrip())
    if named is None or not frames:
        return None
    more = list(_more(lines, index + 1))
    text = "\n".join([named[2] or "", *more]).strip()
    name = named[1].rpartition(".")[2]
    at, end = lines[index].at, lines[index + len(more)].at
    return Raised(name, text, at, end, tuple(frames), link, stream, aside), index + 1


def _ipython_block(
    stream: str, lines: Sequence[_Line], index: int, name: str
) -> tuple[Raised, int] | None:
    frames: list[Frame] = []
    short = name.rpartition(".")[2]
    last = re.compile(rf"(?:[\w.]+\.)?{re.escape(short)}(?:: |:?$)")
    for end in range(index, min(len(lines), index + _IPYTHON_LINES)):
        text = lines[end].text
        if last.match(text):
            message = text.partition(": ")[2].strip()
            at = lines[end].at
            return Raised(short, message, at, at, tuple(frames), "", stream), end + 1
        if _IPYTHON_HEAD.match(text):
            return None  # of the next exception: each is read once, however many there are
        if frame := _IPYTHON_FRAME.match(text):
            frames.append(Frame(frame[1], 0, frame[2], ""))
        elif frames and (code := _IPYTHON_CODE.match(text)):
            frames[-1] = frames[-1]._replace(line=int(code[1]), source=code[2].strip())
    return None


def undrawn(text: str) -> str:
    """A line of a traceback without the drawing of an exception group."""
    drawing = re.match(r"\s*(?:\||\+-[+-]*) ?", text)
    if drawing is None or not text.lstrip().startswith(("| ", "+-")):
        return text
    return text[drawing.end() :] or " "


def _more(lines: Sequence[_Line], index: int) -> Iterator[str]:
    for line in lines[index : index + _LINES]:
        text = line.text
        if not text.strip() or text.strip() == '"""' or _HEAD in text or text.strip() in _LINKS:
            return
        yield text.rstrip()


def last_of(tail: Sequence[str]) -> Raised | None:
    """The last exception in the last lines of a log, even if its traceback began before them."""
    complete = {exception.at: exception for exception in raised(tail)}
    messages = {at for each in complete.values() for at in range(each.at + 1, each.end + 1)}
    for at in range(len(tail) - 1, -1, -1):
        stream, text = unmarked(undrawn(tail[at]))
        if at in complete:
            if not complete[at].aside:
                return complete[at]
        elif at not in messages and (named := _ALONE.match(text)):
            return Raised(named[1].rpartition(".")[2], named[2] or "", at, at, (), "", stream)
    return None


def last_chain(exceptions: Sequence[Raised]) -> list[Raised]:
    """The last exception that may have ended a program and those that led to it, oldest first."""
    candidates = [exception for exception in exceptions if not exception.aside]
    if not candidates:
        return []
    stream = [exception for exception in candidates if exception.stream == candidates[-1].stream]
    chain = [stream.pop()]
    while chain[0].link and stream:
        chain.insert(0, stream.pop())
    return chain


def root(chain: Sequence[Raised]) -> Raised:
    """The exception that the rest of a chain derives from. `raise … from`, and a `raise` in the
    function that caught it, restate a failure; an exception raised elsewhere in a handler is a
    failure of its own."""
    origin = chain[-1]
    for before, after in zip(reversed(chain[:-1]), reversed(chain[1:]), strict=True):
        if not _is_translation(before, after):
            break
        origin = before
    return origin


def _is_translation(before: Raised, after: Raised) -> bool:
    if after.link == "cause":
        return True
    caught, last = before.frames[0], after.frames[-1]
    again = (caught.file, caught.function) == (last.file, last.function)
    return again and last.source.startswith("raise")


def is_the_end(lines: Sequence[str], last: Raised, strict: bool = False) -> bool:
    """Whether the program ended with this exception: no output of a running program follows.
    ``strict``: lines that may belong to the exception's message count as output, too."""
    before, after = (
        [text for stream, text in map(unmarked, part) if stream == last.stream]
        for part in (lines[: last.at], _without_ignored(lines[last.at + 1 :]))
    )
    bars = {bar[0] for bar in map(_BAR.match, before) if bar}
    rest = [text for text in after if not ((bar := _BAR.match(text)) and bar[0] in bars)]
    one_line = strict or last.was_caught or _ONE_LINE.match(last.printed)
    message = 0 if one_line else _message_lines(last, before, rest)
    return all(not text.strip() or is_noise(text) for text in rest[message:])


def ends_python(last: Raised, code: int) -> bool:
    """Whether Python ended with ``code`` by this exception, whatever output came late after it."""
    return code == 1 and bool(last.frames) and not last.was_caught


def _without_ignored(lines: Sequence[str]) -> list[str]:
    """The lines but for the exceptions that Python printed and ignored."""
    ignored = [exception for exception in raised(lines) if exception.aside]
    messages = {at for each in ignored for at in range(each.at, each.end + 1)}
    heads = {at for at, line in enumerate(lines) if ignored and line.endswith(_HEAD)}
    return [line for at, line in enumerate(lines) if at not in messages | heads]


def is_noise(text: str) -> bool:
    """Whether such a line may follow the end of a program."""
    return bool(_NOISE.match(text))


def _message_lines(last: Raised, before: Sequence[str], after: Sequence[str]) -> int:
    """How many lines after an exception may belong to its message: up to its end mark; otherwise
    up to the first that is empty, looks like progress output, or starts like an earlier line."""
    if mark := _ENDS.get(last.name):
        marked = [n for n, text in enumerate(after[:200]) if text.startswith(mark)]
        if marked:
            return marked[-1] + 1
    earlier = {_beginning(text) for text in before if not text[:1].isspace()}
    for n, text in enumerate(after[:_OWN_LINES]):
        repeated = _beginning(text) in earlier and not is_noise(text)
        if not text.strip() or repeated or _AT_WORK.match(text):
            return n
    return min(len(after), _OWN_LINES)


def _beginning(text: str) -> str | None:
    """The first word of a line; all numbers count as the same."""
    word = _BEGINNING.match(text)
    return word and ("0" if word[1].isdigit() else word[1].lower())
