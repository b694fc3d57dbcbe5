"""Settings of `roundtrip serve` and `roundtrip worker`: from arguments, the environment, and a file."""

import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from roundtrip.channels.local.loopback_peers import is_loopback
from roundtrip.server.key_files import KEY_FILE_VARIABLE, KEYS_VARIABLE
from roundtrip.serving.host_checks import ANY, host_from, origin_from
from roundtrip.switches import PROBE_VARIABLE
from roundtrip.trace.writing.names import TRACE_VARIABLE

JsonResponse = Literal["auto", "always", "never"]

DEFAULT_FILE: Final = "roundtrip.toml"
LIVE_PATH: Final = "/health/live"
READY_PATH: Final = "/health/ready"
_PREFIX: Final = "ROUNDTRIP_"
_OTHER_VARIABLES: Final = (KEYS_VARIABLE, KEY_FILE_VARIABLE, TRACE_VARIABLE, PROBE_VARIABLE)
"""Environment variables that the commands do not use as settings, but that are still checked for misspellings."""
_FLAGS: Final = {"allowed_hosts": "allowed_host", "allowed_origins": "allowed_origin"}
"""Maps each list setting to the flag that adds one item."""
_RULES: Final = {"int_parsing": "must be a whole number", "float_parsing": "must be a number"}
"""Maps pydantic's error types to messages that replace pydantic's own."""


class BadSettings(ValueError):
    """Invalid setting or settings file; the message names the setting and where it was set."""


class ProcessSettings(BaseModel):
    """Process settings: each has a flag and an environment variable such as ROUNDTRIP_WORKERS."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    table: ClassVar[str]
    """The table in the settings file that contains these settings."""

    workers: int = Field(default=1, ge=1, le=256)
    drain: float = Field(default=0.0, ge=0, le=600)
    timeout_graceful_shutdown: float = Field(default=30.0, ge=0, le=86400)
    timeout_start: float = Field(default=60.0, gt=0, le=86400)
    log_level: Literal["debug", "info", "warning", "error"] = "info"


class WorkerSettings(ProcessSettings):
    """Settings of `roundtrip worker`."""

    table = "worker"

    concurrency: int = Field(default=100, ge=1, le=10_000)
    timeout_graceful_shutdown: float = Field(default=10.0, ge=0, le=86400)


class ServeSettings(ProcessSettings):
    """Settings of `roundtrip serve`."""

    table = "serve"

    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    path: str = "/mcp"
    sessions: bool | None = None
    json_response: JsonResponse = "auto"
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    show_errors: bool = False
    limit_connections: int = Field(default=1000, ge=8, le=1_000_000)
    max_body: int = Field(default=4 * 2**20, ge=1024, le=2**30)
    timeout_request: float = Field(default=30.0, gt=0, le=86400)
    drain: float = Field(default=1.0, ge=0, le=600)
    timeout_keep_alive: float = Field(default=75.0, gt=0, le=86400)
    access_log: bool = False

    @field_validator("allowed_hosts", "allowed_origins", mode="before")
    @classmethod
    def _split_list(cls, value: object) -> object:
        """Split a variable's value at its commas."""
        return tuple(one.strip() for one in value.split(",") if one.strip()) if isinstance(value, str) else value

    @field_validator("allowed_hosts", "allowed_origins")
    @classmethod
    def _check_names(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        """Reject a name that no request can match."""
        read = host_from if info.field_name == "allowed_hosts" else origin_from
        for one in value:
            if one != ANY and ANY in one.removesuffix(f":{ANY}"):
                raise PydanticCustomError("name", "'*' must be the only name; list it alone, or list each name")
            try:
                _ = None if one == ANY else read(one)
            except ValueError as error:
                raise PydanticCustomError("name", "{why}", {"why": str(error)}) from error
        return value

    @field_validator("host")
    @classmethod
    def _remove_brackets(cls, value: str) -> str:
        """Remove the brackets from an IPv6 address."""
        return value[1:-1] if value.startswith("[") and value.endswith("]") else value

    @field_validator("path")
    @classmethod
    def _check_path(cls, value: str) -> str:
        if not value.startswith("/"):
            raise PydanticCustomError("path", "a path must start with '/'")
        if "?" in value or "#" in value or value in (LIVE_PATH, READY_PATH):
            raise PydanticCustomError("path", "a path must have no '?' or '#', and must not be a health-check path")
        return value

    @property
    def keeps_sessions(self) -> bool:
        """Return True if live-era clients get sessions. The server can ask these clients only in a session.

        With several workers, a session costs a relay between them. It is not worth its cost if responses are always
        JSON, because then nothing can be asked.
        """
        return (self.workers == 1 or self.json_response != "always") if self.sessions is None else self.sessions

    @property
    def asks_older_clients(self) -> bool:
        """Return True if the server can ask live-era clients."""
        return self.keeps_sessions and self.json_response != "always"

    @property
    def is_loopback(self) -> bool:
        """Return True if only this machine can reach the host."""
        return is_loopback(self.host)


def misspelled_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that look like misspelled settings, each with the setting that was probably
    meant.
    """
    settings = (name for kind in (ServeSettings, WorkerSettings) for name in kind.model_fields)
    known = {*_OTHER_VARIABLES, *(f"{_PREFIX}{name.upper()}" for name in settings)}
    unknown = sorted(name for name in environment if name.startswith(_PREFIX) and name not in known)
    similar = {name: difflib.get_close_matches(name, known, n=1, cutoff=0.9) for name in unknown}
    return {name: matches[0] for name, matches in similar.items() if matches}


_SettingsT = TypeVar("_SettingsT", bound=ProcessSettings)
_TABLES: Final = (ServeSettings.table, WorkerSettings.table)


def read_settings(kind: type[_SettingsT], arguments: Mapping[str, Any], *, file: str | Path | None) -> _SettingsT:
    """Read the settings from arguments, environment and file.

    Args:
        kind: The settings model.
        arguments: Command-line settings by name. A setting that was not given is None.
        file: The settings file; None to read `roundtrip.toml` if that file exists.

    Raises:
        BadSettings: A setting is invalid.
    """
    path = Path(DEFAULT_FILE if file is None else file)
    file_values: Mapping[str, Any] = _read_file(path, kind.table) if file is not None or path.is_file() else {}
    fields = kind.model_fields
    if unknown := sorted(set(file_values).difference(fields)):
        raise BadSettings(
            f"{str(path)!r}: [{kind.table}] has unknown keys: {', '.join(unknown)}; use {', '.join(fields)}"
        )
    values: dict[str, Any] = {**file_values}
    sources = {name: f"{str(path)!r}: {name}" for name in file_values}
    for name in fields:
        variable = f"{_PREFIX}{name.upper()}"
        if variable in os.environ:
            values[name], sources[name] = os.environ[variable], variable
        single = f"{_PREFIX}{_FLAGS.get(name, name).upper()}"
        if single != variable and single in os.environ:
            raise BadSettings(
                f"{single} has no effect; use the variable {variable}, which takes a comma-separated list"
            )
    for name, value in arguments.items():
        if value is not None:
            values[name], sources[name] = value, f"--{_FLAGS.get(name, name).replace('_', '-')}"
    try:
        return kind(**values)
    except ValidationError as error:
        mistakes = [
            f"{sources[str(one['loc'][0])]}: {_RULES.get(one['type'], one['msg'])}, got {one['input']!r}"
            for one in error.errors()
        ]
        raise BadSettings("; ".join(mistakes).replace("Input should be", "must be")) from error


def _read_file(path: Path, table: str) -> Mapping[str, Any]:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadSettings(f"{str(path)!r} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise BadSettings(f"{str(path)!r} is not valid TOML: {error}") from error
    if unknown := sorted(set(content).difference(_TABLES)):
        raise BadSettings(
            f"{str(path)!r} has unknown tables or keys: {', '.join(unknown)}; settings belong under [{table}]"
        )
    file_values: object = content.get(table, {})
    if not isinstance(file_values, dict):
        raise BadSettings(f"{str(path)!r}: settings must be under [{table}]")
    return cast("dict[str, Any]", file_values)
