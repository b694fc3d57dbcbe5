"""The clocks, randomness and ids that everything is handed."""

import time

import pytest

from roundtrip.system import SYSTEM, System


def test_default_clock_follows_a_patched_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 7.0)
    monkeypatch.setattr(time, "monotonic", lambda: 8.0)
    assert (SYSTEM.time(), SYSTEM.monotonic()) == (7.0, 8.0)


def test_id_is_entropy_in_base64url() -> None:
    assert System(entropy=lambda size: bytes(range(size))).new_id() == "AAECAwQFBgcI"
    assert len(SYSTEM.entropy(5)) == 5


def test_no_id_begins_with_a_dash() -> None:
    drawn = iter([b"\xf8" * 9, b"\xfb" * 9, b"\x01" * 9])
    assert System(entropy=lambda _size: next(drawn)).new_id() == "AQEBAQEBAQEB"


@pytest.mark.anyio
async def test_sleep_returns() -> None:
    await SYSTEM.sleep(0)
