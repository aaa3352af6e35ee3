"""Python's tracebacks in what a rank printed, and which of them ended it. Pure, and linear in the
lines.

What several processes wrote into one log is told apart by the marks that torch, mpirun and Ray put
before lines. A traceback that the program outlived is no reason of its end.
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
_NAMED = re.compile(r"([A-Za-z_](?:\w|\.|<locals>)*)(?:: ?(.*))?$")
_LINKS = {
    "The above exception was the direct cause of the following exception:": "cause",
    "During handling of the above exception, another exception occurred:": "context",
}
# An exception's line whose traceback is not known.
_ALONE = re.compile(r"([\w.]*(?:Error|Exception|Interrupt|Exit|Group))(?:: ?(.*))?$")
# A message of more lines is not read to its end.
_LINES = 24
# What a group of exceptions is drawn with.
_DRAWN = re.compile(r"^\s*(?:\+-[+-]*|[|+]) ?")

# What others still say while a program goes down, and programs around it after that.
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
# Who closes a progress bar draws it once more, as it stood.
_BAR = re.compile(r".*\d%\|.*\| \d+/\d+ ")
# So many lines may be of an exception's own message, where its end is not marked as these have it.
_OWN_LINES = 8
_ENDS = {
    "ChildFailedError": "=====",
    "UnpicklingError": "Check the documentation of torch.load",
    "ValidationError": "    For further information visit",
}
# Python itself says these in one line: what follows is no message of theirs. Others than Python
# raise some of them, too: its own AttributeError ends with the name, or a question.
_OF_ONE_LINE = re.compile(
    r"(?:ModuleNotFound|Key|Index|Name|UnboundLocal|ZeroDivision|Recursion|Unicode\w+|"
    r"JSONDecode|EOF)Error\b|AttributeError: [^\n]*['?](?:\n|$)|"
    r"ImportError: cannot import name |KeyboardInterrupt$|"
    r"\w*Error: \[Errno -?\d|RuntimeError: (?:No CUDA GPUs|Found no NVIDIA)"
)
# How programs begin what they say while they work, and messages seldom do.
_AT_WORK = re.compile(
    r"\W*(?:epoch|step|iter(?:ation)?|batch|train(?:ing|ed)?|eval\w*|valid(?:ation|ating)|loss|"
    r"start(?:ing|ed)?|resum(?:ing|ed)|continu(?:ing|ed)|falling|going|saved|saving|done)\b",
    re.IGNORECASE,
)
_BEGINNING = re.compile(r"\W*([^\W\d]+|\d)")
# A package's own code, and Python's.
_NOT_THE_USERS = re.compile(r"/(?:site|dist)-packages/|/lib/python\d|<frozen |<string>|^<__array")


class Frame(NamedTuple):
    file: str
    line: int
    function: str
    source: str


class Raised(NamedTuple):
    """An exception as it was printed: ``name`` without its module, the lines of its ``text`` as
    one, ``at`` the index of its line. ``link`` is what it has to do with the one before it: its
    `cause`, its `context`, or nothing. ``stream`` tells processes in one log apart. ``aside``: of
    a thread or of something ignored; no program ends by it."""

    name: str
    text: str
    at: int
    end: int
    frames: tuple[Frame, ...]
    link: str = ""
    stream: str = ""
    aside: bool = False

    @property
    def said(self) -> str:
        """Name and text as Python prints them."""
        return f"{self.name}: {self.text}" if self.text else self.name

    @property
    def was_caught(self) -> bool:
        """Whether a function of the user's has caught it: a traceback begins where it was caught,
        and that of what nothing caught with the module that was started."""
        first = self.frames[0] if self.frames else Frame("", 0, "", "")
        return is_the_users(first.file) and first.function not in ("", "<module>")


def is_the_users(file: str) -> bool:
    """Whether it is of the user's own code."""
    return not _NOT_THE_USERS.search(file)


class _Line(NamedTuple):
    at: int
    text: str


def unmarked(line: str) -> tuple[str, str]:
    """Whose line it is, where that is marked, and the line itself."""
    found = _MARK.match(line)
    if found is None:
        return "", line
    return next(filter(None, found.groups()), ""), line[found.end() :]


def raised(lines: Sequence[str]) -> list[Raised]:
    """Every exception with its traceback, in the order of their lines."""
    streams: dict[str, list[_Line]] = {}
    for at, line in enumerate(lines):
        stream, text = unmarked(line)
        streams.setdefault(stream, []).append(_Line(at, text))
    found = [each for name, own in streams.items() for each in _of_stream(name, own)]
    return sorted(found, key=lambda each: each.at)


def _of_stream(stream: str, lines: Sequence[_Line]) -> Iterator[Raised]:
    index, link, before = 0, "", ""
    while index < len(lines):
        text = lines[index].text
        plain = _DRAWN.sub("", text).strip()
        is_head = plain.endswith(_HEAD) and not plain.startswith(("'", "During"))
        # Of code that Python cannot read there is no head.
        if is_head or (before != "frame" and _bare(lines, index)):
            found = _block(stream, lines, index + is_head, link, _is_aside(before, plain))
            if found is not None:
                yield found[0]
                index, link, before = found[1], "", ""
                continue
        if plain in _LINKS:
            link = _LINKS[plain]
        elif plain and plain != '"""' and not is_head:
            link = ""
        before = plain or before
        index += 1


def _bare(lines: Sequence[_Line], index: int) -> bool:
    found = _FRAME.match(lines[index].text)
    if found is None or found[3]:
        return False
    after = [each.text for each in lines[index + 1 : index + 4]]
    return any(re.match(r"(\w*SyntaxError|IndentationError|TabError)\b", each) for each in after)


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
        if found := _FRAME.match(text):
            source = undrawn(lines[index + 1].text) if index + 1 < len(lines) else ""
            own = source.startswith("    ") and not _FRAME.match(source)
            frames.append(
                Frame(found[1], int(found[2]), found[3] or "", source.strip() if own else "")
            )
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
    whole = Raised(
        name, text, lines[index].at, index + len(more), tuple(frames), link, stream, aside
    )
    return whole, index + 1


def undrawn(text: str) -> str:
    """A line of a traceback without what a group of exceptions is drawn with."""
    found = re.match(r"\s*(?:\||\+-[+-]*) ?", text)
    if found is None or not text.lstrip().startswith(("| ", "+-")):
        return text
    return text[found.end() :] or " "


def _more(lines: Sequence[_Line], index: int) -> Iterator[str]:
    for line in lines[index : index + _LINES]:
        text = line.text
        if not text.strip() or text.strip() == '"""' or _HEAD in text or text.strip() in _LINKS:
            return
        yield text.rstrip()


def last_of(tail: Sequence[str]) -> Raised | None:
    """The last exception of a log's last lines, also where its traceback began before them."""
    whole = {each.at: each for each in raised(tail)}
    said = {at for each in whole.values() for at in range(each.at + 1, each.end + 1)}
    for at in range(len(tail) - 1, -1, -1):
        stream, text = unmarked(undrawn(tail[at]))
        if at in whole:
            if not whole[at].aside:
                return whole[at]
        elif at not in said and (named := _ALONE.match(text)):
            return Raised(named[1].rpartition(".")[2], named[2] or "", at, at, (), "", stream)
    return None


def last_chain(found: Sequence[Raised], end: int | None = None) -> list[Raised]:
    """The last exception before line ``end`` that may have ended a program, after those that led
    to it, oldest first."""
    able = [each for each in found if not each.aside and (end is None or each.at < end)]
    if not able:
        return []
    stream = [each for each in able if each.stream == able[-1].stream]
    chain = [stream.pop()]
    while chain[0].link and stream:
        chain.insert(0, stream.pop())
    return chain


def root(chain: Sequence[Raised]) -> Raised:
    """Of a chain the exception that the others come from. One that was only translated (`raise …
    from`, or a `raise` in the very function that caught it) is the same failure in other words; one
    that happened in the handler of another is a failure of its own, which nobody caught."""
    found = chain[-1]
    for before, after in zip(reversed(chain[:-1]), reversed(chain[1:]), strict=True):
        if not _is_translation(before, after):
            return found
        found = before
    return found


def _is_translation(before: Raised, after: Raised) -> bool:
    if after.link == "cause":
        return True
    caught, last = before.frames[0], after.frames[-1]
    again = (caught.file, caught.function) == (last.file, last.function)
    return again and last.source.startswith("raise")


def is_the_end(lines: Sequence[str], last: Raised, strict: bool = False) -> bool:
    """Whether nothing follows that a program which went on would have printed; ``strict`` does not
    forgive what may be the rest of the exception's message either."""
    before, after = (
        [text for stream, text in map(unmarked, part) if stream == last.stream]
        for part in (lines[: last.at], lines[last.at + 1 :])
    )
    bars = {bar[0] for bar in map(_BAR.match, before) if bar}
    left = [text for text in after if not ((bar := _BAR.match(text)) and bar[0] in bars)]
    whole = strict or last.was_caught or _OF_ONE_LINE.match(last.said)
    own = 0 if whole else _message(last, before, left)
    return all(not text.strip() or is_noise(text) for text in left[own:])


def is_noise(text: str) -> bool:
    """Whether others say such a line while a program goes down, or after it."""
    return bool(_NOISE.match(text))


def _message(last: Raised, before: Sequence[str], after: Sequence[str]) -> int:
    """How many of the lines after an exception may be its own message: up to its mark, else to the
    first that is empty, or begins as one did before or as those of a program that goes on do."""
    if mark := _ENDS.get(last.name):
        marked = [n for n, text in enumerate(after[:200]) if text.startswith(mark)]
        if marked:
            return marked[-1] + 1
    begun = {_beginning(text) for text in before if not text[:1].isspace()}
    for n, text in enumerate(after[:_OWN_LINES]):
        again = _beginning(text) in begun and not is_noise(text)
        if not text.strip() or again or _AT_WORK.match(text):
            return n
    return min(len(after), _OWN_LINES)


def _beginning(text: str) -> str | None:
    """The first word of a line; one number stands for all."""
    found = _BEGINNING.match(text)
    return found and ("0" if found[1].isdigit() else found[1].lower())
