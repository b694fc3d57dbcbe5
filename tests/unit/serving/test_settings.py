"""Settings of `roundtrip serve`: arguments over the environment over a file."""

import re
import socket
from pathlib import Path

import pytest

from roundtrip.serving.process import listen
from roundtrip.serving.settings import BadSettings, ServeSettings, misspelled_variables, read_settings
from tests.kit.tables import check_each


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ServeSettings.model_fields:
        monkeypatch.delenv(f"ROUNDTRIP_{name.upper()}", raising=False)
    return tmp_path / "roundtrip.toml"


def reason_of(given: dict[str, object]) -> str:
    """Return why settings are rejected; nothing if they are not."""
    try:
        read_settings(ServeSettings, given, file=None)
    except BadSettings as error:
        return str(error)
    return ""


def test_arguments_win_over_the_environment_and_that_over_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text('[serve]\nport = 1\nhost = "h"\nworkers = 3\nallowed_hosts = ["a", "b"]\n')
    monkeypatch.setenv("ROUNDTRIP_PORT", "2")
    monkeypatch.setenv("ROUNDTRIP_HOST", "other")
    bracketed = read_settings(ServeSettings, {"host": "[::1]"}, file=None)
    assert (bracketed.host, bracketed.is_loopback) == ("::1", True)
    found = read_settings(ServeSettings, {"port": "4", "host": None}, file=None)
    assert (found.port, found.host, found.workers, found.path) == (4, "other", 3, "/mcp")
    assert found.allowed_hosts == ("a", "b")
    monkeypatch.setenv("ROUNDTRIP_ALLOWED_HOSTS", "c, d")
    assert read_settings(ServeSettings, {}, file=None).allowed_hosts == ("c", "d")
    assert ServeSettings.model_validate_json(found.model_dump_json()) == found


WRONG_FILES = [
    ("[serve]\nprot = 1\n", "unknown keys: prot"),
    ("port = 1\n", r"under \[serve\]"),
    ("serve = 1\n", r"under \[serve\]"),
    ("[serve", "not valid TOML"),
    ("[serve]\nport = 70000\n", "roundtrip.toml': port"),
]


def test_a_file_that_says_something_else_is_rejected_by_name(file: Path) -> None:
    def check(content: str, told: str) -> None:
        file.write_text(content)
        assert re.search(told, reason_of({}))

    check_each(WRONG_FILES, check)
    # A file that is named has to exist.
    with pytest.raises(BadSettings, match="cannot be read"):
        read_settings(ServeSettings, {}, file=file.parent / "other.toml")


WRONG_ARGUMENTS: list[tuple[dict[str, object], str]] = [
    ({"path": "mcp"}, "--path: a path must start with '/', got 'mcp'"),
    *(({"path": path}, r"no '\?' or '#', and must not be a health") for path in ("/health/live", "/mcp?x=1", "/mcp#x")),
    ({"json_response": "maybe"}, "--json-response: must be 'auto'"),
    ({"port": "99999"}, "--port: must be less than or equal to 65535, got '99999'"),
    ({"allowed_origins": ["app.example.com"]}, "--allowed-origin: an origin must be SCHEME://NAME"),
    ({"allowed_origins": ["https://app.example.com/"]}, "without a path"),
    ({"allowed_hosts": ["https://app.example.com"]}, "--allowed-host: a host must be NAME"),
    ({"allowed_hosts": ["*.example.com"]}, r"--allowed-host: '\*' must be the only name"),
    ({"allowed_origins": ["https://*.example.com:*"]}, r"--allowed-origin: '\*' must be the only name"),
]


def test_mistake_is_reported_at_its_place(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del file

    def check(given: dict[str, object], told: str) -> None:
        assert re.search(told, reason_of(given))

    check_each(WRONG_ARGUMENTS, check)
    monkeypatch.setenv("ROUNDTRIP_WORKERS", "tcp://10.0.0.1:80")
    assert "ROUNDTRIP_WORKERS: must be a whole number, got 'tcp:" in reason_of({})
    meant = misspelled_variables(dict.fromkeys(["ROUNDTRIP_WORKER", "ROUNDTRIP_KEYFILE", "ROUNDTRIP_CITY"], ""))
    assert meant == {"ROUNDTRIP_WORKER": "ROUNDTRIP_WORKERS", "ROUNDTRIP_KEYFILE": "ROUNDTRIP_KEY_FILE"}
    # The variable for several names is in the plural.
    monkeypatch.setenv("ROUNDTRIP_ALLOWED_ORIGIN", "https://app.example")
    told = r"^ROUNDTRIP_ALLOWED_ORIGIN has no effect; use the variable ROUNDTRIP_ALLOWED_ORIGINS, which takes a comma-"
    assert re.search(told, reason_of({}))


def test_no_part_of_a_response_waits_for_word_of_another(file: Path) -> None:
    del file
    with (
        listen(ServeSettings(host="localhost", port=0)) as listening,
        socket.create_connection(listening.getsockname()),
    ):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
