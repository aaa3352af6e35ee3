r"""Values put into a bash command so that bash can never run them.

A reader follows the command's quoting (quotes, backslash, ``$( )``, backticks, ``${ }``,
arithmetic, comments, here-documents, ``case``) and each value is written the way its place asks:

    place               written
    outside quotes      '…' around a path; a literal as bash treats a variable there, without
                        globbing: an argument is split at blanks, `x=…` and `[[ … ]]` are not
    "…"                 \ " $ ` behind a backslash
    '…'                 ' as '\''
    $'…'                all but plain letters as \xHH
    =~ …, == … in [[ ]] a pattern, as a variable is
    a comment           $'…' with \xHH: a newline would end the comment
    <<EOF               \ $ ` behind a backslash; <<'EOF': as it is; refused when a line of the
                        result would be the delimiter
    ${…}, name[…]       plain letters only, others refused
    $((…)), ((…))       numbers only: arithmetic runs `a[$(…)]` even when it is quoted

After a construct that no short reader follows with certainty (``case``, ``=~``, quotes within
``"${…}"``, …) values are written as ``$'\xHH'`` only: whatever the place really is, no letter of
that means anything to bash, so a misreading can spoil a value but never run it.

Not covered, as the command itself asks for it: ``eval``, ``bash -c``, ``let``, ``declare``,
``printf -v`` and arithmetic on a variable, all of which read their data as code a second time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from allranks.errors import Problem, SpecError
from allranks.spec.shell import quoting
from allranks.spec.shell.quoting import ASSIGNMENT, PLAIN, Held

_NUMBER = re.compile(r"[+-]?[0-9][0-9A-Fa-fxX.]*")
_SUBSCRIPT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\[[^]]*")
_INDEX = re.compile(r"\[[^]]*")
_PATTERNS_AFTER = frozenset(["=", "==", "!=", "=~"])
# A command can start after these, so `case` and `[[` are keywords there.
_LEADING = frozenset(["if", "then", "else", "elif", "do", "while", "until", "!", "time", "{", "in"])
_BREAKS = frozenset(" \t\n;&|()<>")
# In a word, what is more than a letter of it.
_SPECIAL = frozenset("\\'\"`$#")
_DEEPEST = 50

_FREE, _WORD, _NUMERIC = range(3)  # what a position accepts: anything, plain letters, numbers


def weave(atoms: Sequence[str | Held]) -> str:
    """The command with its values quoted.

    Raises SpecError where no quoting makes a value safe.
    """
    reader = _Reader(atoms)
    reader.commands(closer="")
    return "".join(reader.out)


class _Reader:
    """Reads atoms once, left to right, and writes to ``out``. One method per kind of position."""

    def __init__(self, atoms: Sequence[str | Held], *, sure: bool = True, depth: int = 0) -> None:
        self.atoms = atoms
        self.at = 0
        self.out: list[str] = []
        self.sure = sure
        self.depth = depth
        self.lets_in = _FREE
        self.in_test = False  # within [[ … ]], where -eq reads its words as arithmetic
        self.in_case = False  # between `case` and `in`
        self.heredocs: list[tuple[str, bool, bool]] = []  # delimiter, quoted, tabs stripped

    # Reading and writing

    def peek(self, ahead: int = 0) -> str | Held | None:
        at = self.at + ahead
        return self.atoms[at] if at < len(self.atoms) else None

    def sees(self, text: str) -> bool:
        return all(self.peek(i) == letter for i, letter in enumerate(text))

    def copy(self, count: int = 1) -> None:
        for atom in self.atoms[self.at : self.at + count]:
            assert isinstance(atom, str)
            self.out.append(atom)
        self.at += count

    def put(self, write: Callable[[Held, bool], str]) -> None:
        held = self.peek()
        assert isinstance(held, Held)
        self.at += 1
        value = held.value
        if "\0" in value:
            raise quoting.refused(held, "holds a NUL byte, which no command line can carry")
        if self.lets_in == _NUMERIC and not _NUMBER.fullmatch(value):
            raise quoting.refused(held, "is used in arithmetic and is not a number")
        if self.lets_in == _WORD and not quoting.PLAIN.fullmatch(value):
            place = "is used in `${…}`, an index or `>&`"
            raise quoting.refused(held, f"{place} and is not a plain word")
        runs = "[" in value and ("$" in value or "`" in value)
        if self.in_test and runs and write is not quoting.pattern:
            raise quoting.refused(held, "is used in `[[ … ]]`, where bash could execute it")
        self.out.append(write(held, self.sure))

    def backslash(self, write: Callable[[Held, bool], str], before_value: str) -> None:
        r"""A backslash and the character it escapes. One right before a value must not affect our
        quoting."""
        if not isinstance(self.peek(1), Held):
            if self.peek(1) == "\n" and self.at and self.atoms[self.at - 1] not in (" ", "\t"):
                self.sure = False  # bash joins the lines first: `$\<newline>(` is `$(`
            self.copy(min(2, len(self.atoms) - self.at))
            return
        self.at += 1
        self.out.append(before_value)
        self.put(write)

    @contextmanager
    def deeper(self, lets_in: int, *, in_test: bool = False) -> Iterator[None]:
        kept = self.lets_in, self.in_test, self.in_case, self.heredocs
        if self.depth == _DEEPEST:
            hint = "move it to a script file and call that"
            raise SpecError(Problem("the command nests too deeply", where="command", hint=hint))
        if self.heredocs:
            self.sure = False
        self.depth += 1
        self.lets_in, self.in_test, self.in_case, self.heredocs = lets_in, in_test, False, []
        yield
        self.sure = self.sure and not self.heredocs
        self.depth -= 1
        self.lets_in, self.in_test, self.in_case, self.heredocs = kept

    # Places

    def commands(self, *, closer: str, array: bool = False) -> None:
        """Commands, or the elements of an ``array``, up to the ``)`` that closes them, or to the
        end."""
        word, before, leads, cases, target, twice = "", "", not array, 0, False, False
        while (atom := self.peek()) is not None:
            if isinstance(atom, str) and atom not in _BREAKS and atom not in _SPECIAL:
                self.copy()  # looking at the whole word for each letter takes minutes
                word += atom
                continue
            if isinstance(atom, Held) or atom not in _BREAKS:
                index = _SUBSCRIPT.fullmatch(word) or (array and _INDEX.fullmatch(word))
                self.lets_in = _WORD if index or twice else _FREE
                if atom == "#" and not word:
                    self.comment()
                elif isinstance(atom, Held):
                    if self.in_test and not word and before in _PATTERNS_AFTER:
                        self.put(quoting.pattern)
                    else:
                        self.put(self.written(atom, word, leads=leads, target=target))
                    word += "\0"
                else:
                    word += self.word_part(atom)
                continue
            cases += self.keyword(word) if leads else 0
            leads = self.still_leads(word, leads)
            if atom == ")" and cases <= 0:
                self.copy()
                if closer:
                    return
                self.sure = False
            elif atom == "(":
                self.parenthesis(word)
            elif self.sees("<<") and not self.sees("<<<"):
                self.heredoc_operator()
            else:
                self.copy(3 if self.sees("<<<") else 1)
            leads = leads or (atom in "\n;&|()" and not array)
            # Bash expands the word after `>&`, and then once more what came of it.
            twice = target and not word and (atom == "&" or (twice and atom in " \t"))
            target = atom in "<>" or (target and not word and atom in "& \t")
            before = word or before
            word = ""
            if atom == "\n":
                self.heredoc_bodies()

    def written(
        self, held: Held, word: str, *, leads: bool, target: bool
    ) -> Callable[[Held, bool], str]:
        """How a value outside quotes is written, after ``word`` of the same word."""
        if self.lets_in != _FREE:
            return quoting.whole
        assigned = ASSIGNMENT.match(word) is not None
        one_word = held.whole or target or self.in_test or self.in_case
        if not self.sure:
            # Words split from an assignment or a redirection would become a command.
            return quoting.whole if one_word or leads or assigned else quoting.words
        following = self.peek(1)
        ends = following is None or (isinstance(following, str) and following in " \t\n;&|)")
        plain = not word or (PLAIN.fullmatch(word) is not None and not assigned)
        if not (one_word or (leads and assigned)):
            if plain and ends and not leads:
                return quoting.words
            if quoting.has_blanks(held) or not held.value or "{" in word:
                return quoting.unquoted
        # Letters before or after a value can make more of it than a word: `~x`, `2>`, `if`.
        changes = "~" in word or (leads and not assigned and not (plain and ends))
        if changes or self.in_test or following in ("<", ">", "("):
            return quoting.quoted
        return quoting.whole

    def word_part(self, atom: str) -> str:
        """One part of a word. Quoted or expanded parts do not belong to a keyword."""
        if self.sees("\\\n"):
            self.backslash(quoting.whole, "")
            return ""
        if atom == "\\":
            self.backslash(quoting.whole, "")
        elif atom == "'":
            self.copy()
            self.quoted(quoting.single)
        elif atom == '"':
            self.copy()
            self.double()
        elif atom == "`":
            self.backticks(in_double=False)
        elif self.sees("$'"):
            self.copy(2)
            self.quoted(quoting.ansi)
        elif atom == "$":
            self.dollar(in_double=False)
        else:
            self.copy()
            return atom
        return "\0"

    def keyword(self, word: str) -> int:
        """How many ``case`` this word opens at the start of a command."""
        if word == "[[":
            self.in_test = True
        if word in ("case", "esac"):
            self.sure = False
            self.in_case = word == "case"
        return {"case": 1, "esac": -1}.get(word, 0)

    def still_leads(self, word: str, leads: bool) -> bool:
        if word == "]]":
            self.in_test = False
        if word == "in":
            self.in_case = False
        if self.in_test and word == "=~" and not self.value_alone():
            self.sure = False
        return (leads and (not word or word in _LEADING)) or (word == "in" and not self.sure)

    def value_alone(self) -> bool:
        """Whether the next word is one value and nothing else."""
        ahead = 0
        while self.peek(ahead) in (" ", "\t"):
            ahead += 1
        return isinstance(self.peek(ahead), Held) and self.peek(ahead + 1) in (" ", "\t", "\n")

    def parenthesis(self, word: str) -> None:
        if self.sees("((") and not word:
            self.copy(2)
            self.arithmetic("(", ")", opened=2)
            return
        self.copy()
        with self.deeper(_FREE, in_test=self.in_test):
            self.commands(closer=")", array=ASSIGNMENT.fullmatch(word) is not None)

    def comment(self) -> None:
        while (atom := self.peek()) is not None and atom != "\n":
            if isinstance(atom, Held):
                self.put(quoting.remark)
            else:
                self.copy()

    def quoted(self, write: Callable[[Held, bool], str]) -> None:
        """The rest of ``'…'`` or ``$'…'``."""
        while (atom := self.peek()) is not None:
            if isinstance(atom, Held):
                self.put(write)
            elif atom == "\\" and write is quoting.ansi:
                self.backslash(write, "\\\\")
            else:
                self.copy()
                if atom == "'":
                    return

    def double(self) -> None:
        """The rest of ``"…"``."""
        while (atom := self.peek()) is not None:
            if atom == '"':
                self.copy()
                return
            self.expandable(quoting.double, atom)

    def expandable(self, write: Callable[[Held, bool], str], atom: str | Held) -> None:
        """One step where only backslash, dollar and backtick are special."""
        if isinstance(atom, Held):
            self.put(write)
        elif atom == "\\":
            self.backslash(write, "\\\\")
        elif atom == "`":
            self.backticks(in_double=True)
        elif atom == "$":
            self.dollar(in_double=True)
        else:
            self.copy()

    def dollar(self, *, in_double: bool) -> None:
        held = self.peek(1)
        if isinstance(held, Held):
            # `$` before a value that starts with `(` would make it a command.
            self.out.append("$" if quoting.PLAIN.fullmatch(held.value) else "\\$")
            self.at += 1
        elif self.sees("$(("):
            self.copy(3)
            self.arithmetic("(", ")", opened=2)
        elif self.sees("$("):
            self.copy(2)
            with self.deeper(_FREE):
                self.commands(closer=")")
        elif self.sees("$["):
            self.copy(2)
            self.arithmetic("[", "]", opened=1)
        elif self.sees("${"):
            self.copy(2)
            with self.deeper(max(self.lets_in, _WORD)):
                self.braces(in_double=in_double)
        else:
            self.copy()

    def braces(self, *, in_double: bool) -> None:
        """The rest of ``${…}``."""
        if self.peek() in (" ", "\t", "\n", "|"):
            self.sure = False  # bash 5.3: `${ commands; }`
        while (atom := self.peek()) is not None:
            if atom == "}":
                self.copy()
                return
            if atom in ("'", '"') and in_double:
                self.sure = False  # whether these are quotes depends on the operator before them
            if atom == '"':
                self.copy()
                self.double()
            elif atom == "'" and not in_double:
                self.copy()
                self.quoted(quoting.single)
            else:
                self.expandable(quoting.double, atom)

    def arithmetic(self, opening: str, closing: str, *, opened: int) -> None:
        """The rest of ``$((…))``, ``((…))`` or ``$[…]``."""
        with self.deeper(_NUMERIC):
            while (atom := self.peek()) is not None and opened:
                opened += (atom == opening) - (atom == closing)
                if atom == closing and opened == 1 and opening == "(" and not self.sees("))"):
                    self.sure = False  # `$((a) | b)`: commands after all
                if atom in ("'", '"', "#"):
                    self.sure = False
                if atom == '"':
                    self.copy()
                    self.double()
                else:
                    self.expandable(quoting.double, atom)

    def backticks(self, *, in_double: bool) -> None:
        r"""`` `…` ``: rewritten as ``$(…)`` if it contains a value, because backticks remove
        backslashes before the inner command is read."""
        end, inner = self.at + 1, list[str | Held]()
        hides = '$`\\"' if in_double else "$`\\"
        while end < len(self.atoms) and self.atoms[end] != "`":
            following = self.atoms[end + 1] if end + 1 < len(self.atoms) else None
            if self.atoms[end] == "\\" and isinstance(following, str) and following in hides:
                end += 1
            inner.append(self.atoms[end])
            end += 1
        if not any(isinstance(atom, Held) for atom in inner):
            self.copy(min(end + 1, len(self.atoms)) - self.at)
            return
        with self.deeper(_FREE):
            within = _Reader(inner, sure=self.sure, depth=self.depth)
            within.commands(closer="")
        self.sure = within.sure
        self.out += ["$(", *within.out, "\n)"]  # the newline ends a comment within
        self.at = end + 1

    # Here-documents

    def heredoc_operator(self) -> None:
        self.copy(2)
        strips = self.peek() == "-"
        if strips:
            self.copy()
        while self.peek() in (" ", "\t"):
            self.copy()
        start = self.at
        while (atom := self.peek()) is not None and atom not in _BREAKS:
            if isinstance(atom, Held):
                raise quoting.refused(atom, "is used as a here-document's delimiter")
            self.copy()
        raw = "".join(str(atom) for atom in self.atoms[start : self.at])
        delimiter = re.sub(r"[\\'\"]", "", raw)
        closed = raw.count("'") % 2 == 0 and raw.count('"') % 2 == 0 and not raw.endswith("\\")
        self.sure = self.sure and "$" not in raw and "`" not in raw and bool(raw) and closed
        self.heredocs.append((delimiter, delimiter != raw, strips))

    def heredoc_bodies(self) -> None:
        while self.heredocs:
            delimiter, quoted, strips = self.heredocs.pop(0)
            end, after = self.heredoc_end(delimiter, quoted, strips)
            within = _Reader(self.atoms[self.at : end], sure=self.sure, depth=self.depth)
            while (atom := within.peek()) is not None:
                if isinstance(atom, Held):
                    within.put(quoting.verbatim if quoted else quoting.heredoc)
                elif quoted:
                    within.copy()
                else:
                    within.expandable(quoting.heredoc, atom)
            self.sure = within.sure
            body = "".join(within.out)
            held = next((a for a in within.atoms if isinstance(a, Held)), None)
            if held and _closes(body, delimiter):
                raise quoting.refused(held, f"would end the here-document `{delimiter}`")
            self.out.append(body)
            self.at = end
            self.copy(after - end)

    def heredoc_end(self, delimiter: str, quoted: bool, strips: bool) -> tuple[int, int]:
        """Where the body ends, and where the line with its delimiter does."""
        start, joined = self.at, False
        while start < len(self.atoms):
            end = start
            while end < len(self.atoms) and self.atoms[end] != "\n":
                end += 1
            line = "".join("\0" if isinstance(a, Held) else a for a in self.atoms[start:end])
            if (line.lstrip("\t") if strips else line) == delimiter and not joined:
                return start, end
            joined = not quoted and (len(line) - len(line.rstrip("\\"))) % 2 == 1
            start = end + 1
        for atom in self.atoms[self.at :]:
            if isinstance(atom, Held):
                raise quoting.refused(atom, f"is used in `<<{delimiter}`, which is not terminated")
        return len(self.atoms), len(self.atoms)


def _closes(body: str, delimiter: str) -> bool:
    lines = [*body.split("\n"), *body.replace("\\\n", "").split("\n")]
    return bool(delimiter) and any(line.lstrip("\t") == delimiter for line in lines)
