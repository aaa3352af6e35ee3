"""The output of ranks for a terminal: what would steer it is shown as text, colours are kept.

A terminal obeys what it reads: a rank could set its title or clipboard, clear the screen, or turn
letters around so that a line reads as another.
"""

from __future__ import annotations

import re

# ESC that begins neither a colour nor "erase to the end of the line", which `grep --color` and
# compilers write after colours; other controls but tab and line ends; 8-bit controls (C1); what
# changes the direction of text (U+061C, U+200E-F, U+202A-E, U+2066-9). The class comes first
# because `re` searches for one quickly.
_STEERS = re.compile(
    rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\xc2\xd8\xe2]"
    rb"(?:(?<=\x1b)(?!\[(?:[0-9;:]*m|0?K))|(?<=[\x00-\x1a\x1c-\x1f\x7f])"
    rb"|(?<=\xc2)[\x80-\x9f]|(?<=\xd8)\x9c"
    rb"|(?<=\xe2)(?:\x80[\x8e\x8f\xaa-\xae]|\x81[\xa6-\xa9]))"
)
_CONTROLS = bytes({*range(0x20), 0x7F} - {*b"\t\n\r"})
# 8-bit controls that are no part of UTF-8, as `surrogateescape` decodes them.
_BYTES = re.compile("[\udc80-\udc9f]")


def harmless(lines: bytes) -> bytes:
    r"""Whole lines with `^[`, `^G`, `\x9b` or `\u202e` in place of what would steer a terminal."""
    if lines.isascii():
        if len(lines.translate(None, _CONTROLS)) == len(lines):
            return lines  # nearly all output; three times as fast as the pattern
    else:
        try:
            lines.decode()
        except UnicodeDecodeError:
            text = lines.decode(errors="surrogateescape")
            text = _BYTES.sub(lambda match: f"\\x{ord(match[0]) - 0xDC00:02x}", text)
            lines = text.encode(errors="surrogateescape")
    return _STEERS.sub(_as_text, lines)


def _as_text(match: re.Match[bytes]) -> bytes:
    code = ord(match[0].decode())
    if code < 0x80:
        return b"^" + bytes([code ^ 0x40])
    return b"\\x%02x" % code if code < 0x100 else b"\\u%04x" % code
