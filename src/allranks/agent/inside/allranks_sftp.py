"""A server of SFTP on standard input and output: version 3, as OpenSSH speaks it.

Runs in a rank's working folder, for `allranks job ssh-config`, by any Python of the node or image.
The protocol is draft-ietf-secsh-filexfer-02, with OpenSSH's extensions that its clients use.
"""

import errno
import os
import stat
import struct
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Tuple

_OK, _EOF, _NO_FILE, _DENIED, _FAILURE, _BAD, _UNSUPPORTED = 0, 1, 2, 3, 4, 5, 8
_STATUS, _HANDLE, _DATA, _NAME, _ATTRS, _EXTENDED_REPLY = 101, 102, 103, 104, 105, 201
_CODES = {
    errno.ENOENT: _NO_FILE,
    errno.ENOTDIR: _NO_FILE,
    errno.EACCES: _DENIED,
    errno.EPERM: _DENIED,
}
# Flags of an open, and of attributes.
_READ, _WRITE, _APPEND, _CREATE, _TRUNCATE, _EXCLUSIVE = 1, 2, 4, 8, 16, 32
_SIZE, _OWNER, _MODE, _TIMES, _MORE = 1, 2, 4, 8, 1 << 31
_LONGEST = 1 << 20
_EXTENSIONS = (
    (b"posix-rename@openssh.com", b"1"),
    (b"statvfs@openssh.com", b"2"),
    (b"hardlink@openssh.com", b"1"),
    (b"fsync@openssh.com", b"1"),
    (b"lsetstat@openssh.com", b"1"),
)


class _Malformed(Exception):
    pass


class _Packet:
    """What a client has sent, read from its beginning on."""

    def __init__(self, data):  # type: (bytes) -> None
        self._data, self._at = data, 0

    def number(self, form="!I"):  # type: (str) -> int
        end = self._at + struct.calcsize(form)
        if end > len(self._data):
            raise _Malformed
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at = end
        return int(value)

    def text(self):  # type: () -> bytes
        end = self.number() + self._at
        if end > len(self._data):
            raise _Malformed
        value = self._data[self._at : end]
        self._at = end
        return value

    def path(self):  # type: () -> bytes
        return self.text() or b"."

    def attributes(self):  # type: () -> Dict[str, Any]
        flags, attributes = self.number(), {}  # type: int, Dict[str, Any]
        if flags & _SIZE:
            attributes["size"] = self.number("!Q")
        if flags & _OWNER:
            attributes["owner"] = (self.number(), self.number())
        if flags & _MODE:
            attributes["mode"] = stat.S_IMODE(self.number())
        if flags & _TIMES:
            attributes["times"] = (self.number(), self.number())
        for _ in range(self.number() if flags & _MORE else 0):
            self.text()
            self.text()
        return attributes


def _text(data):  # type: (bytes) -> bytes
    return struct.pack("!I", len(data)) + data


def _attributes(status):  # type: (os.stat_result) -> bytes
    times = [max(0, min(int(at), 0xFFFFFFFF)) for at in (status.st_atime, status.st_mtime)]
    numbers = (status.st_size, status.st_uid, status.st_gid, status.st_mode, times[0], times[1])
    return struct.pack("!IQIIIII", _SIZE | _OWNER | _MODE | _TIMES, *numbers)


def _long(name, status):  # type: (bytes, os.stat_result) -> bytes
    """A line as `ls -l` prints it."""
    at = time.strftime("%b %d %H:%M %Y", time.localtime(status.st_mtime))
    numbers = (status.st_nlink, status.st_uid, status.st_gid, status.st_size)
    line = "%s %4d %-8d %-8d %12d %s " % ((stat.filemode(status.st_mode), *numbers, at))
    return line.encode() + name


class _Server:
    """Answers one packet after the other. ``files`` are open files, ``folders`` what is left of
    listings."""

    def __init__(self):  # type: () -> None
        self._files = {}  # type: Dict[bytes, int]
        self._folders = {}  # type: Dict[bytes, List[Tuple[bytes, os.stat_result]]]
        self._last = 0
        self._does = {
            3: self._open,
            4: self._close,
            5: self._read,
            6: self._write,
            7: lambda p: _attrs(os.lstat(p.path())),
            8: lambda p: _attrs(os.fstat(self._file(p))),
            9: lambda p: _set(p.path(), p.attributes()),
            10: lambda p: _set(self._file(p), p.attributes()),
            11: self._open_folder,
            12: self._list,
            13: lambda p: os.unlink(p.path()),
            14: self._make_folder,
            15: lambda p: os.rmdir(p.path()),
            16: lambda p: _names([(os.path.realpath(p.path()), None)]),
            17: lambda p: _attrs(os.stat(p.path())),
            18: self._rename,
            19: lambda p: _names([(os.readlink(p.path()), None)]),
            # OpenSSH sends the target first, unlike the draft.
            20: lambda p: os.symlink(p.text(), p.path()),
            200: self._extended,
        }

    def answer(self, kind, packet):  # type: (int, _Packet) -> bytes
        number = packet.number()
        does = self._does.get(kind)
        if does is None:
            reply = _status(_UNSUPPORTED, "this operation is not supported")
        else:
            try:
                reply = does(packet) or _status(_OK, "")
            except OSError as error:
                code = _CODES.get(error.errno or 0, _FAILURE)
                reply = _status(code, error.strerror or str(error))
            except (_Malformed, ValueError, OverflowError):
                reply = _status(_BAD, "the request is malformed")
        return reply[:1] + struct.pack("!I", number) + reply[1:]

    def _handle(self):  # type: () -> bytes
        self._last += 1
        return b"%d" % self._last

    def _file(self, packet):  # type: (_Packet) -> int
        handle = packet.text()
        if handle not in self._files:
            raise _Malformed
        return self._files[handle]

    def _open(self, packet):  # type: (_Packet) -> bytes
        path, wants, attributes = packet.path(), packet.number(), packet.attributes()
        flags = os.O_RDWR if wants & _READ and wants & _WRITE else os.O_RDONLY
        flags = os.O_WRONLY if wants & _WRITE and not wants & _READ else flags
        for wish, flag in (
            (_APPEND, os.O_APPEND),
            (_CREATE, os.O_CREAT),
            (_TRUNCATE, os.O_TRUNC),
            (_EXCLUSIVE, os.O_EXCL),
        ):
            flags |= flag if wants & wish else 0
        # To open a pipe waits for its other end, and sftp has no place to wait in.
        flags |= os.O_NOCTTY | os.O_NONBLOCK
        handle, file = self._handle(), os.open(path, flags, attributes.get("mode", 0o666))
        if stat.S_ISFIFO(os.fstat(file).st_mode):
            os.close(file)
            raise OSError(errno.ESPIPE, "it is a pipe, not a file")
        self._files[handle] = file
        return _byte(_HANDLE) + _text(handle)

    def _close(self, packet):  # type: (_Packet) -> None
        handle = packet.text()
        if handle in self._files:
            os.close(self._files.pop(handle))
        elif self._folders.pop(handle, None) is None:
            raise _Malformed

    def _read(self, packet):  # type: (_Packet) -> bytes
        file, at, count = self._file(packet), packet.number("!Q"), packet.number()
        data = os.pread(file, min(count, _LONGEST // 2), at)
        return _byte(_DATA) + _text(data) if data or not count else _status(_EOF, "end of file")

    def _write(self, packet):  # type: (_Packet) -> None
        file, at, data = self._file(packet), packet.number("!Q"), packet.text()
        while data:
            count = os.pwrite(file, data, at)
            data, at = data[count:], at + count

    def _open_folder(self, packet):  # type: (_Packet) -> bytes
        path, handle = packet.path(), self._handle()
        entries = []
        for name in [b".", b"..", *os.listdir(path)]:
            try:
                entries.append((name, os.lstat(os.path.join(path, name))))
            except OSError:
                continue  # it has gone
        self._folders[handle] = entries
        return _byte(_HANDLE) + _text(handle)

    def _list(self, packet):  # type: (_Packet) -> bytes
        entries = self._folders.get(packet.text())
        if entries is None:
            raise _Malformed
        some = entries[:100]
        del entries[:100]
        return _names(some) if some else _status(_EOF, "end of the listing")

    def _make_folder(self, packet):  # type: (_Packet) -> None
        path, attributes = packet.path(), packet.attributes()
        os.mkdir(path, attributes.get("mode", 0o777))

    def _rename(self, packet):  # type: (_Packet) -> None
        source, target = packet.path(), packet.path()
        if os.path.lexists(target):
            raise OSError(errno.EEXIST, "it exists")
        os.rename(source, target)

    def _extended(self, packet):  # type: (_Packet) -> Any
        name = packet.text()
        if name == b"posix-rename@openssh.com":
            return os.replace(packet.path(), packet.path())
        if name == b"hardlink@openssh.com":
            return os.link(packet.path(), packet.path())
        if name == b"fsync@openssh.com":
            return os.fsync(self._file(packet))
        if name == b"lsetstat@openssh.com":
            return _set(packet.path(), packet.attributes(), follow=False)
        if name == b"statvfs@openssh.com":
            status = os.statvfs(packet.path())
            numbers = [status.f_bsize, status.f_frsize, status.f_blocks, status.f_bfree]
            numbers += [status.f_bavail, status.f_files, status.f_ffree, status.f_favail]
            numbers += [0, status.f_flag & 3, status.f_namemax]
            return _byte(_EXTENDED_REPLY) + struct.pack("!11Q", *numbers)
        return _status(_UNSUPPORTED, "this extension is not supported")


def _byte(number):  # type: (int) -> bytes
    return struct.pack("!B", number)


def _status(code, message):  # type: (int, str) -> bytes
    return _byte(_STATUS) + struct.pack("!I", code) + _text(message.encode()) + _text(b"en")


def _attrs(status):  # type: (os.stat_result) -> bytes
    return _byte(_ATTRS) + _attributes(status)


def _names(entries):  # type: (List[Tuple[bytes, Any]]) -> bytes
    parts = [_byte(_NAME), struct.pack("!I", len(entries))]
    for name, status in entries:
        if status is None:
            parts.append(_text(name) + _text(name) + struct.pack("!I", 0))
        else:
            parts.append(_text(name) + _text(_long(name, status)) + _attributes(status))
    return b"".join(parts)


def _set(target, attributes, follow=True):  # type: (Any, Dict[str, Any], bool) -> None
    """Set attributes of a path or of an open file."""
    if "size" in attributes:
        os.truncate(target, attributes["size"])
    if "mode" in attributes and follow:  # Linux has no modes of links
        os.chmod(target, attributes["mode"])
    how = {} if isinstance(target, int) else {"follow_symlinks": follow}  # type: Any
    if "owner" in attributes:
        os.chown(target, *attributes["owner"], **how)
    if "times" in attributes:
        os.utime(target, attributes["times"], **how)


def _read(count):  # type: (int) -> bytes
    parts = []
    while count:
        data = os.read(0, count)
        if not data:
            raise EOFError
        parts.append(data)
        count -= len(data)
    return b"".join(parts)


def _send(data):  # type: (bytes) -> None
    data = _text(data)
    while data:
        data = data[os.write(1, data) :]


def main():  # type: () -> None
    server = _Server()
    try:
        while True:
            (length,) = struct.unpack("!I", _read(4))
            if not 1 <= length <= _LONGEST:
                return
            kind, data = ord(_read(1)), _read(length - 1)
            if kind == 1:
                extensions = b"".join(_text(name) + _text(value) for name, value in _EXTENSIONS)
                _send(_byte(2) + struct.pack("!I", 3) + extensions)
            else:
                _send(server.answer(kind, _Packet(data)))
    except (EOFError, _Malformed, BrokenPipeError):
        pass


if __name__ == "__main__":
    main()
