"""The clocks, randomness and ids of a process."""

import time

import pytest

from roundtrip.system import SYSTEM, System


def test_default_clock_follows_a_patched_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 7.0)
    monkeypatch.setattr(time, "monotonic", lambda: 8.0)
    assert (SYSTEM.time(), SYSTEM.monotonic()) == (7.0, 8.0)


def test_id_is_entropy_in_base64url_without_a_dash_in_front() -> None:
    drawn = iter([b"\xf8" * 9, b"\xfb" * 9, bytes(range(9))])
    sizes: list[int] = []

    def next_drawn(size: int) -> bytes:
        sizes.append(size)
        return next(drawn)

    assert System(entropy=next_drawn).new_id() == "AAECAwQFBgcI"
    assert sizes == [9] * 3
    assert len(SYSTEM.entropy(5)) == 5
