"""Keys from the environment and from key files.

A key file has one key per line: its role, the key in hex, and the time at which the key got that role. A new key has
the role `next`, and only verifies tokens. Then its role becomes `signs`, and it also signs tokens. Its last role is
`former`: it no longer signs, but still verifies its own tokens.
"""

import logging
import re
import stat
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

logger = logging.getLogger("roundtrip")

KEYS_VARIABLE: Final = "ROUNDTRIP_KEYS"
KEY_FILE_VARIABLE: Final = "ROUNDTRIP_KEY_FILE"

_LINE: Final = re.compile(r"(?P<role>signs|next|former)\s+(?P<key>[0-9a-f]{64,512})\s+(?P<since>\S+)", re.ASCII)
_MAX_FILE_BYTES: Final = 64 * 1024
_HEAD: Final = """\
# Keys of a roundtrip server, which reads this file if ROUNDTRIP_KEY_FILE names it. Keep the keys secret.
# `roundtrip keys rotate` replaces the signing key in three steps.
"""


class Role(Enum):
    """A key's role. Keys verify tokens in every role."""

    SIGNS = "signs"
    NEXT = "next"
    FORMER = "former"


class RoledKey(NamedTuple):
    """One line of a key file."""

    role: Role
    key: str
    since: datetime


class KeyFile(NamedTuple):
    """Contents of a key file: the signing key, and at most one other key, whose role is `next` or `former`."""

    signs: RoledKey
    other: RoledKey | None = None

    @property
    def keys(self) -> list[str]:
        """Return the keys for `Server(keys=...)`."""
        return [self.signs.key] if self.other is None else [self.signs.key, self.other.key]

    def text(self) -> str:
        """Return the file's text."""
        lines = [self.signs] if self.other is None else [self.signs, self.other]
        return _HEAD + "".join(f"{line.role.value:<6} {line.key} {line.since:%Y-%m-%dT%H:%M:%SZ}\n" for line in lines)

    @classmethod
    def read(cls, path: Path) -> "KeyFile":
        """Read a key file.

        Raises:
            ValueError: The file cannot be read, or is not a key file. The message never quotes a key.
        """
        try:
            with path.open("rb") as file:
                raw = file.read(_MAX_FILE_BYTES + 1)
            text = raw.decode("ascii")
        except OSError as error:
            raise ValueError(
                f"the key file {str(path)!r} cannot be read: {error.strerror}; make one with: roundtrip keys new FILE"
            ) from error
        except UnicodeDecodeError:
            raise ValueError(f"{str(path)!r} is not a key file; make one with: roundtrip keys new FILE") from None
        if len(raw) > _MAX_FILE_BYTES:
            raise ValueError(f"{str(path)!r} is too large for a key file; make one with: roundtrip keys new FILE")
        found: list[RoledKey] = []
        for number, line in enumerate(text.splitlines(), start=1):
            if line.strip() and not line.lstrip().startswith("#"):
                found.append(_read_line(line, where=f"{str(path)!r}, line {number}"))
        signs = [key for key in found if key.role is Role.SIGNS]
        others = [key for key in found if key.role is not Role.SIGNS]
        if len(signs) != 1 or len(others) > 1:
            raise ValueError(
                f"the key file {str(path)!r} must have one signing key and at most one other, got {len(signs)} signing "
                f"and {len(others)} other keys; make a key file with: roundtrip keys new FILE"
            )
        return cls(signs[0], others[0] if others else None)


class EnvironmentKeys(NamedTuple):
    """Keys from the environment, and the variable that provided them."""

    keys: list[str]
    variable: str


def keys_of(environment: Mapping[str, str]) -> EnvironmentKeys | None:
    """Return the keys from the environment, or None if no key variable is set.

    Raises:
        ValueError: Both variables are set, or the keys cannot be read.
    """
    listed, path = environment.get(KEYS_VARIABLE), environment.get(KEY_FILE_VARIABLE)
    if listed is not None and path is not None:
        raise ValueError(f"{KEYS_VARIABLE} and {KEY_FILE_VARIABLE} are both set; unset one of them")
    if listed is not None:
        keys = [key.strip() for key in listed.split(",") if key.strip()]
        if not keys:
            raise ValueError(
                f"{KEYS_VARIABLE} is set, but empty; set it to one or more keys, newest first, or unset it"
            )
        return EnvironmentKeys(keys, KEYS_VARIABLE)
    if path is None:
        return None
    if not path:
        raise ValueError(f"{KEY_FILE_VARIABLE} is set, but empty; set it to a key file's path, or unset it")
    try:
        found = KeyFile.read(Path(path))
    except ValueError as error:
        raise ValueError(f"{KEY_FILE_VARIABLE}: {error}") from error
    if Path(path).stat().st_mode & (stat.S_IROTH | stat.S_IWOTH):
        # This is a warning and not an error, because secrets that are mounted into a container often have this file
        # mode.
        logger.warning("every user on this machine can read the key file %s; run chmod 600 on it", path)
    return EnvironmentKeys(found.keys, KEY_FILE_VARIABLE)


def _read_line(line: str, *, where: str) -> RoledKey:
    read = _LINE.fullmatch(line.strip())
    try:
        if read is None:
            raise ValueError
        since = datetime.strptime(read["since"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        # Do not quote the line in the message, because the line may contain a key.
        raise ValueError(
            f"{where}: a line must have a role (signs, next or former), a key of at least 64 hex digits, and the time "
            "at which the key got that role, for example: signs 7f7f... 2026-01-31T12:00:00Z"
        ) from None
    return RoledKey(Role(read["role"]), read["key"], since)
