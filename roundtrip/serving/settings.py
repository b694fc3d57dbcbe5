"""Settings of `roundtrip serve`: arguments win over the environment, and that over a file."""

import ipaddress
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, cast

from pydantic import Field, ValidationError, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from roundtrip.serving.names import ANY, host_from, origin_from

__all__ = ["DEFAULT_FILE", "BadSettings", "ServeSettings", "read_settings"]

DEFAULT_FILE: Final = "roundtrip.toml"
_TABLE: Final = "serve"
_PREFIX: Final = "ROUNDTRIP_"
_FLAGS: Final = {"allowed_hosts": "allowed_host", "allowed_origins": "allowed_origin"}
"""Settings that are lists, with the flag that adds one item."""

Texts = Annotated[tuple[str, ...], NoDecode]


class BadSettings(ValueError):
    """An invalid setting or settings file; the text names it and its place."""


class ServeSettings(BaseSettings):
    """Settings of `roundtrip serve`; each has a flag and an environment variable such as ROUNDTRIP_PORT."""

    model_config = SettingsConfigDict(env_prefix=_PREFIX, extra="forbid", frozen=True)

    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    workers: int = Field(default=1, ge=1, le=256)
    path: str = "/mcp"
    sessions: bool | None = None
    json_response: Literal["auto", "always", "never"] = "auto"
    allowed_hosts: Texts = ()
    allowed_origins: Texts = ()
    show_errors: bool = False
    limit_connections: int = Field(default=1000, ge=8, le=1_000_000)
    max_body: int = Field(default=4 * 2**20, ge=1024, le=2**30)
    timeout_request: float = Field(default=30.0, gt=0, le=86400)
    drain: float = Field(default=1.0, ge=0, le=600)
    timeout_graceful_shutdown: float = Field(default=30.0, ge=0, le=86400)
    timeout_keep_alive: float = Field(default=75.0, gt=0, le=86400)
    timeout_start: float = Field(default=60.0, gt=0, le=86400)
    access_log: bool = False
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @field_validator("allowed_hosts", "allowed_origins", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        """Split the commas of a variable."""
        return tuple(one.strip() for one in value.split(",") if one.strip()) if isinstance(value, str) else value

    @field_validator("allowed_hosts", "allowed_origins")
    @classmethod
    def _readable(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        """Reject a name that no request could match."""
        read = host_from if info.field_name == "allowed_hosts" else origin_from
        for one in value:
            try:
                _ = None if one == ANY else read(one)
            except ValueError as error:
                raise PydanticCustomError("name", "{why}", {"why": str(error)}) from error
        return value

    @field_validator("host")
    @classmethod
    def _bare(cls, value: str) -> str:
        """Remove the brackets of an IPv6 address."""
        return value[1:-1] if value.startswith("[") and value.endswith("]") else value

    @field_validator("path")
    @classmethod
    def _absolute(cls, value: str) -> str:
        if not value.startswith("/"):
            raise PydanticCustomError("path", "a path begins with '/'")
        return value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Order the sources: arguments, environment, file."""
        del dotenv_settings, file_secret_settings
        given = init_settings()
        listed = given.pop("from_file", {})
        return (InitSettingsSource(settings_cls, given), env_settings, InitSettingsSource(settings_cls, listed))

    @property
    def keeps_sessions(self) -> bool:
        """True if live era clients have sessions, without which they cannot be asked."""
        return self.workers == 1 if self.sessions is None else self.sessions

    @property
    def asks_older_clients(self) -> bool:
        """True if live era clients can be asked."""
        return self.keeps_sessions and self.json_response != "always"

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can reach the host."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def read_settings(arguments: Mapping[str, Any], *, file: Path | None) -> ServeSettings:
    """Read the settings from arguments, environment and file.

    Args:
        arguments: Settings of the command line by name; None where absent.
        file: Settings file; None for `roundtrip.toml`, if it exists.

    Raises:
        BadSettings: A setting is invalid.
    """
    given = {name: value for name, value in arguments.items() if value is not None}
    path = file if file is not None else Path(DEFAULT_FILE)
    listed: Mapping[str, Any] = _read_file(path) if file is not None or path.is_file() else {}
    if unknown := sorted(set(listed).difference(ServeSettings.model_fields)):
        raise BadSettings(
            f"{str(path)!r}: [{_TABLE}] has no {', '.join(unknown)}; it has {', '.join(ServeSettings.model_fields)}"
        )
    try:
        return ServeSettings(**given, from_file=listed)  # pyright: ignore[reportCallIssue]
    except ValidationError as error:
        raise BadSettings("; ".join(_mistake_text(one, given, listed, path) for one in error.errors())) from error


def _mistake_text(mistake: Any, given: Mapping[str, Any], listed: Mapping[str, Any], path: Path) -> str:
    name = str(mistake["loc"][0]) if mistake["loc"] else ""
    if name in given:
        where = f"--{_FLAGS.get(name, name).replace('_', '-')}"
    else:
        where = f"{str(path)!r}: {name}" if name in listed else f"{_PREFIX}{name.upper()}"
    return f"{where}: {mistake['msg']}, not {mistake['input']!r}"


def _read_file(path: Path) -> Mapping[str, Any]:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadSettings(f"{str(path)!r} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise BadSettings(f"{str(path)!r} is not valid TOML: {error}") from error
    if unknown := sorted(set(content).difference([_TABLE])):
        raise BadSettings(
            f"{str(path)!r} has unknown tables or keys: {', '.join(unknown)}; settings belong under [{_TABLE}]"
        )
    listed: object = content.get(_TABLE, {})
    if not isinstance(listed, dict):
        raise BadSettings(f"{str(path)!r}: settings are under [{_TABLE}]")
    return cast("dict[str, Any]", listed)
