"""`roundtrip keys`: make the keys of a server, and replace them while calls go on."""

import contextlib
import os
import stat
import tempfile
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from roundtrip.cli.command import Command, CommandFailed
from roundtrip.cli.parsing import seconds
from roundtrip.server.key_files import KEY_FILE_VARIABLE, KEYS_VARIABLE, KeyFile, Role, RoledKey

__all__ = ["COMMAND"]

_KEY_BYTES: Final = 32
_MAX_AGE: Final = 3600.0
_LONGEST: Final = 10 * 366 * 86400.0
_MODE: Final = 0o600
_DONE: Final = {Role.SIGNS: "signs", Role.NEXT: "verifies, and will sign", Role.FORMER: "verifies what it has signed"}

_DESCRIPTION: Final = f"""\
Make the keys of a server, and replace them while calls go on. All instances of a service have the same keys, from the
environment: {KEYS_VARIABLE} lists them, newest first, with commas, or {KEY_FILE_VARIABLE} names a file."""

_MORE: Final = """\
rotation:
  `rotate` goes one step further each time it is run, and tells which:
    1  adds a key, which verifies only         roll the file out to all instances, and run it again
    2  lets it sign; the old one verifies      roll the file out to all instances, and wait for --max-age
    3  drops the old one                       roll the file out to all instances
  An instance reads the file when it starts; `roundtrip serve` with several workers also on SIGHUP.

exit codes:
  0  done        2  not done; standard error tells why"""


def _configure(parser: ArgumentParser) -> None:
    parser.formatter_class = RawDescriptionHelpFormatter
    parser.epilog = _MORE
    actions = parser.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    new = actions.add_parser("new", help="make a key", description="Make a key, in a new file that its owner can read.")
    new.add_argument("file", nargs="?", metavar="FILE", help="where to; a file that exists is left alone")
    new.add_argument("--print", action="store_true", help=f"print a key, for {KEYS_VARIABLE}, instead")
    rotate = actions.add_parser(
        "rotate",
        help="go one step further in replacing the key",
        description="Go one step further in replacing the key: add another, let it sign, drop the old one.",
    )
    rotate.add_argument("file", metavar="FILE", help="the key file")
    rotate.add_argument(
        "--max-age",
        type=seconds,
        default=_MAX_AGE,
        metavar="SECONDS",
        help="the longest max_age of the server and its tools: until then a call may bring a token that the old key "
        "has signed, which is therefore not dropped; default: %(default)g",
    )
    rotate.add_argument(
        "--step", type=int, choices=(1, 2, 3), help="refuse to take any other; for scripts, which may run twice"
    )
    rotate.add_argument("--force", action="store_true", help="drop the old key all the same; such calls are lost")
    show = actions.add_parser(
        "show", help="tell which keys there are", description="Tell which keys there are, and nothing secret of them."
    )
    show.add_argument("file", metavar="FILE", help="the key file")


def _run(arguments: Namespace) -> int:
    if arguments.action == "new":
        return _new(arguments)
    path = Path(arguments.file)
    if arguments.action == "show":
        _show(_read(path))
        return 0
    with _alone_with(path):
        keys = _read(path)
        if arguments.step not in (None, step := _next_step(keys)):
            raise CommandFailed(f"step {arguments.step} was asked for, and it is step {step} that comes next")
        further, told = _further(keys, now=_now(), max_age=arguments.max_age, force=arguments.force)
        _replace(path, further.text())
    print(told)
    _show(further)
    return 0


def _read(path: Path) -> KeyFile:
    try:
        return KeyFile.read(path)
    except ValueError as error:
        raise CommandFailed(str(error)) from error


@contextlib.contextmanager
def _alone_with(path: Path) -> Generator[None]:
    """Keep others from rotating at the same time: of two new keys, one would be lost, or sign before it is known.

    Raises:
        CommandFailed: Another does.
    """
    try:
        import fcntl
    except ImportError:  # not on Windows
        yield
        return
    # The folder, as the file is replaced.
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            descriptor = os.open(path.resolve().parent, os.O_RDONLY)
            stack.callback(os.close, descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise CommandFailed(f"another `rotate` is at {str(path)!r}, or at its neighbour; see `show`") from None
        yield


def _new(arguments: Namespace) -> int:
    if arguments.print == (arguments.file is not None):
        raise CommandFailed("name a FILE to write a key to, or say --print")
    key = os.urandom(_KEY_BYTES).hex()
    if arguments.print:
        print(key)
        return 0
    path = Path(arguments.file)
    content = KeyFile(RoledKey(Role.SIGNS, key, _now())).text()
    try:
        # Whole or not at all, and never in place of another: a link fails where there is something.
        temporary = _written(path, content, mode=_MODE)
        try:
            os.link(temporary, path)
        finally:
            temporary.unlink()
    except FileExistsError as error:
        raise CommandFailed(f"{str(path)!r} exists, and is left alone; replace its key with: rotate") from error
    except OSError as error:
        raise CommandFailed(f"{str(path)!r} cannot be written: {error.strerror}") from error
    print(f"Wrote a key to {path}. Give it to every instance: {KEY_FILE_VARIABLE}={path}")
    return 0


def _next_step(keys: KeyFile) -> int:
    """Which of the three steps of a rotation comes next."""
    if keys.other is None:
        return 1
    return 2 if keys.other.role is Role.NEXT else 3


def _further(keys: KeyFile, *, now: datetime, max_age: float, force: bool) -> tuple[KeyFile, str]:
    """The next step of the rotation, and what to tell of it.

    Raises:
        CommandFailed: It is too early for that.
    """
    signs, other = keys.signs, keys.other
    if other is None:
        return KeyFile(signs, RoledKey(Role.NEXT, os.urandom(_KEY_BYTES).hex(), now)), (
            "Step 1 of 3: added a key, which verifies only.\n"
            "Roll the file out to all instances, and when all have it, run `rotate` again for step 2."
        )
    if other.role is Role.NEXT:
        return KeyFile(RoledKey(Role.SIGNS, other.key, now), RoledKey(Role.FORMER, signs.key, now)), (
            "Step 2 of 3: the new key signs, the old one verifies.\n"
            f"Roll the file out to all instances, wait {max_age:g} s after the last of them, and run `rotate` again "
            "for step 3."
        )
    left = (other.since + timedelta(seconds=max_age) - now).total_seconds()
    if left > 0 and not force:
        raise CommandFailed(
            f"it is too early to drop the old key: calls may still bring tokens that it has signed, for {left:.0f} s "
            "after its place was taken. Wait, or say --max-age if calls do not live so long, or --force to lose them"
        )
    return KeyFile(signs), (
        "Step 3 of 3: dropped the old key.\nRoll the file out to all instances. The rotation is complete."
    )


def _show(keys: KeyFile) -> None:
    from roundtrip.tokens.token import KeyRing

    hints = KeyRing(keys.keys).hints()
    for hint, one in zip(hints, (keys.signs, keys.other), strict=False):
        if one is not None:
            print(f"  {hint}  {_DONE[one.role]}, since {one.since:%Y-%m-%d %H:%M:%S} UTC")


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def _replace(path: Path, content: str) -> None:
    """Put another content in the place of a file's, whole or not at all.

    Raises:
        CommandFailed: It cannot be written.
    """
    # What a link points to is replaced, not the link.
    path = path.resolve()
    try:
        before = path.stat()
        temporary = _written(path, content, mode=stat.S_IMODE(before.st_mode))
        try:
            if os.name == "posix" and (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
                # The service may be another user, and would find a file that it cannot read.
                os.chown(temporary, before.st_uid, before.st_gid)
            temporary.replace(path)
        except OSError:
            temporary.unlink()
            raise
        _sync_folder(path.parent)
    except OSError as error:
        raise CommandFailed(f"{str(path)!r} cannot be written: {error.strerror}") from error


def _written(path: Path, content: str, *, mode: int) -> Path:
    """A file next to another, with some content, and on the disk."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        Path(name).unlink()
        raise
    return Path(name)


def _sync_folder(folder: Path) -> None:
    # Not every file system lets a folder be written through; the file is.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


COMMAND = Command(
    description=_DESCRIPTION,
    configure=_configure,
    run=_run,
)
