"""Let one process at a time replace a file. The lock is on its folder, as the file itself is replaced."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked_folder_of(path: Path, *, waits: bool) -> Generator[None]:
    """Hold the lock on the folder of a file inside a `with` block, where the system has such locks.

    Args:
        path: The file.
        waits: True to wait for another process that holds it.

    Raises:
        BlockingIOError: Another process holds it.
    """
    try:
        import fcntl

        descriptor = os.open(path.resolve().parent, os.O_RDONLY)
    except (ImportError, OSError):
        # Windows has no such locks. A folder that cannot be read may still be written.
        yield
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        except BlockingIOError:
            raise
        except OSError:
            # Some network file systems have none.
            pass
        yield
    finally:
        os.close(descriptor)
