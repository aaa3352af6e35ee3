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
    r"make: \*\*\*|Aborted|Killed|proc "
)
# With more lines that are no noise the program went on, and so it did with another complaint.
_OWN_LINES, _MOST_AFTER = 8, 4
_ANOTHER = re.compile(r"\b(error|fatal|critical|failed|fail|abort\w*|exiting)\b", re.IGNORECASE)


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
        text = _undrawn(lines[index].text)
        if found := _FRAME.match(text):
            source = _undrawn(lines[index + 1].text) if index + 1 < len(lines) else ""
            own = source.startswith("    ") and not _FRAME.match(source)
            frames.append(
                Frame(found[1], int(found[2]), found[3] or "", source.strip() if own else "")
            )
        elif text and not text[0].isspace():
            break
        index += 1
    else:
        return None
    named = _NAMED.match(_undrawn(lines[index].text).rstrip())
    if named is None or not frames:
        return None
    more = list(_more(lines, index + 1))
    text = "\n".join([named[2] or "", *more]).strip()
    name = named[1].rpartition(".")[2]
    whole = Raised(
        name, text, lines[index].at, index + len(more), tuple(frames), link, stream, aside
    )
    return whole, index + 1


def _undrawn(text: str) -> str:
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
    """Whether nothing follows that a program which went on would have printed; ``strict`` forgives
    nothing but what is known to be said by others."""
    after = [unmarked(line) for line in lines[last.at + 1 :]]
    own = [text for stream, text in after if stream == last.stream]
    own = own[0 if strict else _message(last, own) :]
    left = [text for text in own if text.strip() and not _NOISE.match(text)]
    if any(_ANOTHER.search(text) for text in left):
        return False
    return len(left) <= (0 if strict else _MOST_AFTER)


def _message(last: Raised, after: Sequence[str]) -> int:
    """How many of the lines after an exception may be its own message. Where that ends is not
    marked, but by torchrun, which draws a line."""
    if last.name == "ChildFailedError":
        drawn = [n for n, text in enumerate(after[:200]) if text.startswith("=====")]
        return drawn[-1] + 1 if drawn else 0
    blank = next((n for n, text in enumerate(after) if not text.strip()), len(after))
    return min(blank, _OWN_LINES)
