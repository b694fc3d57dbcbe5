"""`roundtrip keys`: make the keys of a server, and replace them without losing calls."""

import contextlib
import os
import stat
import tempfile
from argparse import Namespace
from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from roundtrip.cli.command import Command, CommandFailed, reported
from roundtrip.cli.parsing import OptionsAnywhere, seconds
from roundtrip.server.key_files import KEY_FILE_VARIABLE, KEYS_VARIABLE, KeyFile, Role, RoledKey
from roundtrip.trace.writing.folder_lock import locked_folder_of

_KEY_BYTES: Final = 32
_MAX_AGE: Final = 3600.0
_REPORTS: Final = {
    1: "Step 1 of 3: added a key, which verifies only.\n"
    "Roll the file out to all instances, and when all have it, run `rotate` again for step 2.",
    2: "Step 2 of 3: the new key signs, the old one verifies.\n"
    "Roll the file out to all instances, wait {max_age:g} s after the last of them, and run `rotate` again for step 3.",
    3: "Step 3 of 3: dropped the old key.\nRoll the file out to all instances. The rotation is complete.",
}
_DONE: Final = {Role.SIGNS: "signs", Role.NEXT: "verifies, and will sign", Role.FORMER: "verifies what it has signed"}

_DESCRIPTION: Final = f"""\
Make the keys of a server, and replace them without losing calls. All instances of a service have the same keys, from
the environment: {KEYS_VARIABLE} lists them, newest first, with commas, or {KEY_FILE_VARIABLE} names a file."""

_EPILOG: Final = """\
rotation:
  `rotate` takes the next step each time it runs, and prints it:
    1  adds a key, which verifies only         roll the file out to all instances, and run it again
    2  lets it sign; the old one verifies      roll the file out to all instances, and wait for --max-age
    3  drops the old one                       roll the file out to all instances
  An instance reads the file when it starts; `roundtrip serve` with several workers also on SIGHUP.

exit codes:
  0  done
  2  not done; standard error has the reason"""


def _configure(parser: OptionsAnywhere) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    new = actions.add_parser("new", help="make a key", description="Make a key, in a new file that its owner can read.")
    new.add_argument("file", nargs="?", metavar="FILE", help="the new file; an existing one is not changed")
    new.add_switch("--print", f"print a key, for {KEYS_VARIABLE}, instead")
    rotate = actions.add_parser(
        "rotate",
        help="take the next step of replacing the key",
        description="Take the next step of replacing the key: add a new one, let it sign, drop the old one.",
    )
    rotate.add_argument("file", metavar="FILE", help="the key file")
    rotate.add_option(
        "--max-age",
        "SECONDS",
        "the longest max_age of the server and its tools: for that long, calls may bring tokens that the old key "
        "signed, so it is not dropped; default: %(default)g",
        type=seconds,
        default=_MAX_AGE,
    )
    rotate.add_argument(
        "--step", type=int, choices=(1, 2, 3), help="fail if the next step is another; for scripts that may run twice"
    )
    rotate.add_switch("--force", "drop the old key anyway; such calls are lost")
    show = actions.add_parser("show", help="list the keys", description="List the keys without revealing them.")
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
        step = 1 if keys.other is None else 2 if keys.other.role is Role.NEXT else 3
        if arguments.step not in (None, step):
            raise CommandFailed(f"--step {arguments.step} must be the next step, which is {step}")
        keys = _rotated(keys, max_age=arguments.max_age, force=arguments.force)
        _replace(path, keys.text())
    print(_REPORTS[step].format(max_age=arguments.max_age))
    _show(keys)
    return 0


def _read(path: Path) -> KeyFile:
    with reported(ValueError):
        return KeyFile.read(path)


@contextlib.contextmanager
def _alone_with(path: Path) -> Generator[None]:
    """Prevent two rotations at once: one of two new keys would be lost, or sign before all instances know it."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked_folder_of(path, waits=False))
        except BlockingIOError:
            raise CommandFailed(f"another `rotate` is changing {str(path)!r} or a file beside it; see `show`") from None
        yield


def _new(arguments: Namespace) -> int:
    if arguments.print == (arguments.file is not None):
        raise CommandFailed("pass a FILE to write a key to, or --print")
    key = _new_key()
    if arguments.print:
        print(key)
        return 0
    path = Path(arguments.file)
    write_new_key(path, key)
    print(f"Wrote a key to {path}. Give it to every instance: {KEY_FILE_VARIABLE}={path}")
    return 0


def write_new_key(path: Path, key: str | None = None) -> None:
    """Write a new key file for its owner only.

    Raises:
        CommandFailed: The file exists or cannot be written.
    """
    text = KeyFile(RoledKey(Role.SIGNS, key or _new_key(), _now())).text()
    # Write all or nothing, and never over another file: a link fails if the name exists.
    with _written(path, text) as temporary:
        os.link(temporary, path)


def _rotated(keys: KeyFile, *, max_age: float, force: bool) -> KeyFile:
    """Take the next step of a rotation."""
    signs, other = keys
    now = _now()
    if other is None:
        return KeyFile(signs, RoledKey(Role.NEXT, _new_key(), now))
    if other.role is Role.NEXT:
        return KeyFile(RoledKey(Role.SIGNS, other.key, now), RoledKey(Role.FORMER, signs.key, now))
    left = (other.since + timedelta(seconds=max_age) - now).total_seconds()
    if left > 0 and not force:
        raise CommandFailed(
            f"it is too early to drop the old key: for another {left:.0f} s, calls may bring tokens that it signed. "
            "Wait, or pass --max-age if calls do not live so long, or --force to lose them"
        )
    return KeyFile(signs)


def _new_key() -> str:
    return os.urandom(_KEY_BYTES).hex()


def _show(keys: KeyFile) -> None:
    from roundtrip.tokens.token import KeyRing

    hints = KeyRing(keys.keys).hints()
    for hint, one in zip(hints, (keys.signs, keys.other), strict=False):
        if one is not None:
            print(f"  {hint}  {_DONE[one.role]}, since {one.since:%Y-%m-%d %H:%M:%S} UTC")


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def _replace(path: Path, content: str) -> None:
    """Replace the content of a file, all or nothing."""
    # Replace the target of a link, not the link.
    path = path.resolve()
    with _written(path, content) as temporary:
        before = path.stat()
        if os.name == "posix" and (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
            # The service may run as another user, who must still be able to read the file.
            os.chown(temporary, before.st_uid, before.st_gid)
        temporary.chmod(stat.S_IMODE(before.st_mode))
        temporary.replace(path)
    _sync_folder(path.parent)


@contextlib.contextmanager
def _written(path: Path, content: str) -> Generator[Path]:
    """Write a temporary file beside another, synced to disk and for its owner only, and remove it in the end."""
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        temporary = Path(name)
        try:
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            yield temporary
        finally:
            temporary.unlink(missing_ok=True)
    except FileExistsError as error:
        raise CommandFailed(f"{str(path)!r} exists, and was not changed; replace its key with: rotate") from error
    except OSError as error:
        raise CommandFailed(f"{str(path)!r} cannot be written: {error.strerror}") from error


def _sync_folder(folder: Path) -> None:
    # Not every file system can sync a folder; the file itself is synced.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


COMMAND = Command(_DESCRIPTION, _configure, _EPILOG, _run)
