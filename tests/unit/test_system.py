"""The clocks, randomness and ids of a process."""

import re
import time
from pathlib import Path

import pytest

import roundtrip
from roundtrip.system import SYSTEM, System


def test_default_clock_follows_a_patched_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 7.0)
    monkeypatch.setattr(time, "monotonic", lambda: 8.0)
    assert (SYSTEM.time(), SYSTEM.monotonic()) == (7.0, 8.0)


def test_id_is_entropy_in_base64url() -> None:
    def counted(size: int) -> bytes:
        return bytes(range(size))

    assert System(entropy=counted).new_id() == "AAECAwQFBgcI"
    assert len(SYSTEM.entropy(5)) == 5


def test_no_id_begins_with_a_dash() -> None:
    drawn = iter([b"\xf8" * 9, b"\xfb" * 9, b"\x01" * 9])

    def next_drawn(_: int) -> bytes:
        return next(drawn)

    assert System(entropy=next_drawn).new_id() == "AQEBAQEBAQEB"


KNOWN = {
    "subscriptions/redis.py",
    "system.py",
    "tokens/token.py",  # in the text of an error
    "trace/page/loopback.py",
}

DIRECT = re.compile(
    r"\b(time\.(time|monotonic|perf_counter|sleep)|os\.urandom|random\.\w+|secrets\.token\w+|uuid4)\b(?!`)"
)
"""A direct use of a clock or of randomness; `anyio` keeps its own clock, on which its deadlines are."""


def test_only_known_modules_use_clocks_and_randomness_directly() -> None:
    package = Path(roundtrip.__file__).parent
    programs = {"cli", "demo", "doctor", "testing", "client", "playground", "serving", "ui"}
    found = {
        name
        for path in package.rglob("*.py")
        if (name := path.relative_to(package).as_posix()).partition("/")[0] not in programs
        for line in path.read_text("utf-8").splitlines()
        if DIRECT.search(line) and not line.lstrip().startswith(("#", '"', "import", "from"))
    }
    assert found <= KNOWN
