"""Files that several processes write: append lines, rotate full files, and lock a folder while a file is replaced."""

import errno
import logging
import math
import os
import stat
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from roundtrip.system import SYSTEM

try:
    import fcntl
except ImportError:  # Windows: processes that rotate at the same time may lose an old file
    fcntl = None

logger = logging.getLogger("roundtrip")

_FILE_MODE: Final = 0o600
_IDLE_SECONDS: Final = 60.0
"""After this many seconds, a writer checks again whether the file was deleted, for example by `roundtrip trace prune`.
"""
_CHECKS_PER_ROOM: Final = 16
"""A writer checks the file's size each time it has written 1/16 of the free space. So up to 16 writers stay within the
limit.
"""
# Non-blocking, because a pipe with a slow reader or no reader must not block the writer.
_OPEN_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)


@contextmanager
def locked_folder_of(path: Path, *, waits: bool) -> Generator[None]:
    """Lock a file's folder for a `with` block, on systems that support such locks.

    The folder is locked instead of the file, because the file itself is replaced.

    Args:
        path: The file.
        waits: True to wait while another process has the lock.

    Raises:
        BlockingIOError: Another process has the lock, and `waits` is False.
    """
    try:
        descriptor = None if fcntl is None else os.open(path.resolve().parent, os.O_RDONLY)
    except OSError:
        # An unreadable folder may still be writable, so continue without a lock.
        descriptor = None
    if fcntl is None or descriptor is None:
        yield
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        except OSError as error:
            # Some network file systems do not support such locks.
            if isinstance(error, BlockingIOError):
                raise
        yield
    finally:
        os.close(descriptor)


class LineFile:
    """Line-based file that several processes may write. `append` never raises: it logs the first failure and the
    recovery.

    The operating system appends each `write` as a whole, so lines from several processes do not mix. Rotation renames a
    full file to `NAME.1`, `NAME.1` to `NAME.2`, and so on. If a process still has the old file open, it switches to the
    new file when it finds that the old file is full.
    """

    def __init__(self, path: Path, *, max_bytes: int, keep: int) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._keep = keep
        self._fd: int | None = None
        self._is_file = self._rotates = False
        # Bytes written since the last size check, and the bytes allowed before the next check.
        self._unchecked_bytes = self._bytes_to_check = 0
        self._is_torn = False
        self._is_failing = False
        self._checked_at = -math.inf
        self._lock = threading.Lock()

    def append(self, lines: Sequence[bytes]) -> None:
        """Write lines, each ending with a newline. All lines are written with one `write`, unless the file rotates
        between them.
        """
        if not lines:
            return
        with self._lock:
            now = SYSTEM.monotonic()
            try:
                if now - self._checked_at > _IDLE_SECONDS:
                    self._close_if_deleted()
                    self._checked_at = now
                self._write_all(lines)
            except (OSError, ValueError) as error:
                self._log_failure(error)
            else:
                if self._is_failing:
                    self._is_failing = False
                    logger.warning("the transcript %s can be written again, but lines are missing", self.path)

    def open(self) -> None:
        """Open the file if it is closed.

        Raises:
            OSError: The file cannot be opened.
            ValueError: The path is not a valid file name.
        """
        with self._lock:
            if self._fd is None:
                self._open()

    def write(self, line: bytes) -> None:
        """Write one line, which ends with a newline.

        Raises:
            OSError: The line cannot be written.
            ValueError: The path is not a valid file name.
        """
        with self._lock:
            self._write(line)

    def close(self) -> None:
        """Close the file. The next line opens it again."""
        with self._lock:
            self._close()

    def __del__(self) -> None:
        # Nothing closes a recorder's file when its server is discarded, and a program may create many servers.
        if self._fd is not None:
            os.close(self._fd)

    def _write_all(self, lines: Sequence[bytes]) -> None:
        left = sum(map(len, lines))
        for number, line in enumerate(lines):
            # Write several lines at once only if this is a regular file that has space for all of them. In a pipe, a
            # long text could mix with other writers' lines.
            if self._is_file and (not self._rotates or self._unchecked_bytes + left <= self._bytes_to_check):
                self._write(b"".join(lines[number:]))
                return
            self._write(line)
            left -= len(line)

    def _close_if_deleted(self) -> None:
        """Close the file if it was deleted, so that the next line goes to a new file."""
        if self._fd is not None and self._is_file and not os.fstat(self._fd).st_nlink:
            self._close()

    def _write(self, line: bytes) -> None:
        fd = self._fd if self._fd is not None else self._open()
        if self._rotates:
            self._unchecked_bytes += len(line)
            if self._unchecked_bytes > self._bytes_to_check:
                fd = self._check_size(fd, len(line))
        if self._is_torn:
            line = b"\n" + line
        written = os.write(fd, line)
        # If the line was cut off, begin the next line with a newline, so that only this line is lost.
        self._is_torn = written < len(line)
        if self._is_torn:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _open(self) -> int:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fd = self._fd = os.open(self.path, _OPEN_FLAGS, _FILE_MODE)
        file_stat = os.fstat(fd)
        is_file = self._is_file = stat.S_ISREG(file_stat.st_mode)
        self._rotates = self._max_bytes > 0 and is_file
        if is_file and file_stat.st_size and not self._is_torn:
            # A killed process may have left a partial line.
            with self.path.open("rb") as written:
                written.seek(-1, os.SEEK_END)
                self._is_torn = written.read(1) != b"\n"
        return fd

    def _check_size(self, fd: int, length: int) -> int:
        """Rotate the file if it is full. Checking takes longer than writing, so the size is rarely checked."""
        left = self._max_bytes - os.fstat(fd).st_size - length
        if left < 0:
            fd = self._switch_file(fd)
            left = self._max_bytes - os.fstat(fd).st_size
        self._unchecked_bytes = 0
        self._bytes_to_check = max(0, left) // _CHECKS_PER_ROOM
        return fd

    def _switch_file(self, fd: int) -> int:
        """Rotate the file unless another process has rotated it. Then open the file that now has the original name."""
        if not os.fstat(fd).st_size:
            # A line that exceeds the size limit gets a separate file.
            return fd
        if fcntl is not None:
            fcntl.flock(fd, fcntl.LOCK_EX)
        try:
            if self._is_current(fd):
                self._rotate()
        finally:
            # Closing the file releases the lock.
            self._close()
        return self._open()

    def _is_current(self, fd: int) -> bool:
        try:
            named = os.stat(self.path)
        except FileNotFoundError:
            return False
        return os.path.samestat(named, os.fstat(fd))

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

    def _log_failure(self, error: OSError | ValueError) -> None:
        try:
            self._close()
        except OSError:
            self._fd = None
        if not self._is_failing:
            self._is_failing = True
            logger.warning(
                "cannot write the transcript %s: %s; calls continue, and this is not logged again until writing works",
                self.path,
                getattr(error, "strerror", None) or error,
            )
