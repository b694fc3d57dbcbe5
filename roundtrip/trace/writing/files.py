"""Appending whole lines to a file that other processes append to as well, and rotating it."""

import errno
import logging
import os
import stat
import threading
from pathlib import Path
from typing import Final

try:
    import fcntl
except ImportError:  # Windows: two processes that rotate at once may lose an old file there
    fcntl = None

__all__ = ["LineFile"]

logger = logging.getLogger("roundtrip")

_MODE: Final = 0o600
_LOOKS: Final = 16
"""With each look a file of this many writers is at least looked at before it is too full."""
# Without a reader, or with a slow one, a pipe must not hold up whoever writes.
_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)


class LineFile:
    """A file of lines. Failing to write is told once, until writing works again; it never raises.

    The operating system appends one `write` as a whole, so lines of several processes do not mix. When the file is
    full it becomes `NAME.1`, that `NAME.2`, and so on; whoever still has the old one open moves on when it shows full.
    """

    def __init__(self, path: Path, *, max_bytes: int, keep: int) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._keep = keep
        self._fd: int | None = None
        self._rotates = False
        self._unseen = self._room = 0
        """Bytes written since the last look at the file's size, and how many may be until the next."""
        self._torn = False
        self._failing = False
        self._lock = threading.Lock()

    def append(self, line: bytes) -> None:
        """Write one line, with its newline."""
        with self._lock:
            try:
                self._write(line)
            except (OSError, ValueError) as error:
                self._give_up(error)
            else:
                if self._failing:
                    self._failing = False
                    logger.warning("the transcript %s is written again; lines are missing", self.path)

    def close(self) -> None:
        """Let go of the file; the next line opens it again."""
        with self._lock:
            self._close()

    def _write(self, line: bytes) -> None:
        fd = self._fd if self._fd is not None else self._open()
        if self._rotates:
            self._unseen += len(line)
            if self._unseen > self._room:
                fd = self._look(fd, len(line))
        if self._torn:
            line = b"\n" + line
        written = os.write(fd, line)
        # What is left of a line that did not fit is ended before the next, so that only it is lost.
        self._torn = written < len(line)
        if self._torn:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _open(self) -> int:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fd = self._fd = os.open(self.path, _FLAGS, _MODE)
        about = os.fstat(fd)
        is_file = stat.S_ISREG(about.st_mode)
        self._rotates = self._max_bytes > 0 and is_file
        if is_file and about.st_size and not self._torn:
            # A process that was killed may have left half a line.
            with self.path.open("rb") as written:
                written.seek(-1, os.SEEK_END)
                self._torn = written.read(1) != b"\n"
        return fd

    def _look(self, fd: int, length: int) -> int:
        """See how full the file is, as others write to it too; seldom, as asking takes longer than writing."""
        left = self._max_bytes - os.fstat(fd).st_size - length
        if left < 0:
            fd = self._move_on(fd)
            left = self._max_bytes - os.fstat(fd).st_size
        self._unseen = 0
        self._room = max(0, left) // _LOOKS
        return fd

    def _move_on(self, fd: int) -> int:
        """Rotate, unless somebody else has; then go on with the file that has the name now."""
        if not os.fstat(fd).st_size:
            # A line that is larger than a file may be gets one of its own.
            return fd
        if fcntl is not None:
            fcntl.flock(fd, fcntl.LOCK_EX)
        try:
            if self._has_the_name(fd):
                self._rotate()
        finally:
            # Closing gives the lock back.
            self._close()
        return self._open()

    def _has_the_name(self, fd: int) -> bool:
        try:
            named = os.stat(self.path)
        except FileNotFoundError:
            return False
        own = os.fstat(fd)
        return (named.st_ino, named.st_dev) == (own.st_ino, own.st_dev)

    def _rotate(self) -> None:
        names = [self.path.with_name(f"{self.path.name}.{number}") for number in range(1, self._keep + 1)]
        if not names:
            self.path.unlink()
            return
        for older, newer in zip(reversed(names), [*reversed(names[:-1]), self.path], strict=True):
            if newer.exists():
                newer.replace(older)

    def _close(self) -> None:
        if self._fd is not None:
            fd, self._fd = self._fd, None
            os.close(fd)

    def _give_up(self, error: OSError | ValueError) -> None:
        try:
            self._close()
        except OSError:
            self._fd = None
        if not self._failing:
            self._failing = True
            logger.warning(
                "cannot write the transcript %s: %s; calls go on, and this is not told again until it works",
                self.path,
                getattr(error, "strerror", None) or error,
            )
