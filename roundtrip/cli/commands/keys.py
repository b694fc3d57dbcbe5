"""`roundtrip keys`: create and rotate a server's keys without losing calls."""

import contextlib
import os
import stat
import tempfile
from argparse import Namespace
from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from roundtrip.cli.command import Command, CommandFailed, report_errors
from roundtrip.cli.parsing import OptionsAnywhere, seconds
from roundtrip.server.key_files import KEY_FILE_VARIABLE, KEYS_VARIABLE, KeyFile, Role, RoledKey
from roundtrip.trace.writing.files import locked_folder_of

_KEY_BYTES: Final = 32
_MAX_AGE_SECONDS: Final = 3600.0
_REPORTS: Final = {
    0: "Back to step 1 of 3: the old key signs again, and the new key only verifies.\n"
    "Roll out the file to all instances. When all have it, run `rotate` again for step 2.",
    1: "Step 1 of 3: added a key, which only verifies.\n"
    "Roll out the file to all instances. When all have it, run `rotate` again for step 2.",
    2: "Step 2 of 3: the new key signs, and the old key verifies.\n"
    "Roll out the file to all instances, wait {max_age:g} s after the last one, and run `rotate` again for step 3.",
    3: "Step 3 of 3: dropped the old key.\nRoll out the file to all instances. The rotation is complete.",
}
_ROLE_TEXTS: Final = {Role.SIGNS: "signs", Role.NEXT: "verifies, and will sign", Role.FORMER: "verifies older tokens"}

_DESCRIPTION: Final = f"""\
Create and rotate a server's keys without losing calls. All instances of a service need the same keys, from the
environment: {KEYS_VARIABLE} lists them, newest first and separated by commas, or {KEY_FILE_VARIABLE} names a file."""

_EPILOG: Final = """\
rotation:
  `rotate` takes the next step each time it runs, and prints it:
    1  add a key that only verifies; then roll out the file to all instances, and run `rotate` again
    2  sign with the new key, while the old key still verifies; then roll out the file to all instances, wait for
       --max-age, and run `rotate` again
    3  drop the old key; then roll out the file to all instances
  An instance reads the file when it starts. `roundtrip serve` with several workers also reads it on SIGHUP.
  If step 2 ran before all instances had the file of step 1, `rotate --back` returns to step 1.

exit codes:
  0  done
  2  not done; standard error has the reason"""


def _configure(parser: OptionsAnywhere) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    new = actions.add_parser("new", help="create a key", description="Create a key in a new, private file.")
    new.add_argument("file", nargs="?", metavar="FILE", help="the new file; an existing file is not changed")
    new.add_switch("--print", f"print the key instead, for {KEYS_VARIABLE}")
    rotate = actions.add_parser(
        "rotate",
        help="take the next step of a key rotation",
        description="Take the next step of a key rotation: add a new key, sign with it, drop the old key.",
    )
    rotate.add_argument("file", metavar="FILE", help="the key file")
    rotate.add_option(
        "--max-age",
        "SECONDS",
        "the longest max_age of the server and its tools: for that long, calls may present tokens that the old key "
        "signed, so `rotate` does not drop it; default: %(default)g",
        type=seconds,
        default=_MAX_AGE_SECONDS,
    )
    rotate.add_argument(
        "--step", type=int, choices=(1, 2, 3), help="fail unless this is the next step; for scripts that may run twice"
    )
    rotate.add_switch("--back", "return from step 2 to step 1, because an instance does not have the new key yet")
    rotate.add_switch("--force", "drop the old key anyway; calls with its tokens are lost")
    show = actions.add_parser("show", help="list the keys", description="List the keys without revealing them.")
    show.add_argument("file", metavar="FILE", help="the key file")


def _run(arguments: Namespace) -> int:
    if arguments.action == "new":
        return _new(arguments)
    path = Path(arguments.file)
    if arguments.action == "show":
        _show(_read(path))
        return 0
    with _lock_rotation(path):
        keys = _read(path)
        step = 1 if keys.other is None else 2 if keys.other.role is Role.NEXT else 3
        if arguments.step not in (None, step):
            raise CommandFailed(f"--step must be the next step, {step}, got {arguments.step}")
        if arguments.back and step != 3:
            raise CommandFailed(f"--back must follow step 2, but the next step is {step}")
        keys = _next_keys(keys, max_age=arguments.max_age, force=arguments.force, goes_back=arguments.back)
        _replace(path, keys.text())
    print(_REPORTS[0 if arguments.back else step].format(max_age=arguments.max_age))
    _show(keys)
    return 0


def _read(path: Path) -> KeyFile:
    with report_errors(ValueError):
        return KeyFile.read(path)


@contextlib.contextmanager
def _lock_rotation(path: Path) -> Generator[None]:
    """Prevent concurrent rotations. Otherwise, a new key could be lost, or could sign tokens before every instance
    knows the key.
    """
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked_folder_of(path, waits=False))
        except BlockingIOError:
            raise CommandFailed(f"another `rotate` is running in the folder of {str(path)!r}; wait for it") from None
        yield


def _new(arguments: Namespace) -> int:
    if arguments.print == (arguments.file is not None):
        raise CommandFailed("either FILE or --print is required, but not both")
    key = _new_key()
    if arguments.print:
        print(key)
        return 0
    path = Path(arguments.file)
    write_new_key(path, key)
    print(f"Wrote a key to {path}. Give it to every instance: {KEY_FILE_VARIABLE}={path}")
    return 0


def write_new_key(path: Path, key: str | None = None) -> None:
    """Write a key to a new file that only its owner can read.

    Raises:
        CommandFailed: The file exists or cannot be written.
    """
    text = KeyFile(RoledKey(Role.SIGNS, key or _new_key(), _now())).text()
    # Make a hard link to the temporary file. This is atomic, and fails if `path` already exists, so no file is
    # overwritten.
    with _temporary_file(path, text) as temporary:
        os.link(temporary, path)


def _next_keys(keys: KeyFile, *, max_age: float, force: bool, goes_back: bool) -> KeyFile:
    """Return the keys after the next rotation step, or after going back from step 2 to step 1."""
    signing, other = keys
    now = _now()
    if other is None:
        return KeyFile(signing, RoledKey(Role.NEXT, _new_key(), now))
    if other.role is Role.NEXT:
        return KeyFile(RoledKey(Role.SIGNS, other.key, now), RoledKey(Role.FORMER, signing.key, now))
    if goes_back:
        return KeyFile(RoledKey(Role.SIGNS, other.key, now), RoledKey(Role.NEXT, signing.key, now))
    remaining = (other.since + timedelta(seconds=max_age) - now).total_seconds()
    if remaining > 0 and not force:
        raise CommandFailed(
            f"it is too early to drop the old key: for another {remaining:.0f} s, calls may present tokens that it "
            "signed. Wait, pass a shorter --max-age if calls do not live that long, or pass --force to lose these calls"
        )
    return KeyFile(signing)


def _new_key() -> str:
    return os.urandom(_KEY_BYTES).hex()


def _show(keys: KeyFile) -> None:
    from roundtrip.tokens.token import KeyRing

    hints = KeyRing(keys.keys).hints()
    for hint, roled_key in zip(hints, (keys.signs, keys.other), strict=False):
        if roled_key is not None:
            print(f"  {hint}  {_ROLE_TEXTS[roled_key.role]}, since {roled_key.since:%Y-%m-%d %H:%M:%S} UTC")


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def _replace(path: Path, content: str) -> None:
    """Replace a file's content atomically."""
    # If the path is a symbolic link, replace the target and not the link.
    path = path.resolve()
    with _temporary_file(path, content) as temporary:
        status = path.stat()
        if os.name == "posix" and (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid()):
            # Keep the owner, because the service may run as another user and must still be able to read the file.
            os.chown(temporary, status.st_uid, status.st_gid)
        temporary.chmod(stat.S_IMODE(status.st_mode))
        temporary.replace(path)
    _sync_folder(path.parent)


@contextlib.contextmanager
def _temporary_file(path: Path, content: str) -> Generator[Path]:
    """Write a temporary file beside `path`. The file is synced to disk, and removed when the block ends. Only its owner
    can read it.
    """
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
        raise CommandFailed(f"{str(path)!r} exists, and was not changed; to replace its key, use `rotate`") from error
    except OSError as error:
        raise CommandFailed(f"cannot write {str(path)!r}: {error.strerror}") from error


def _sync_folder(folder: Path) -> None:
    # Some file systems cannot sync a folder. The file itself is already synced.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


COMMAND = Command(_DESCRIPTION, _configure, _EPILOG, _run)
