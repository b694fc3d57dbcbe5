"""The fixtures `call_snapshot` and `wire_snapshot`. Only who takes one needs syrupy."""

from collections.abc import Generator
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

import pytest

from roundtrip.testing.chosen import CHOSEN, Choice

if TYPE_CHECKING:
    from roundtrip.testing.snapshots.extension import CallSnapshot, CallSnapshotExtension

__all__ = ["call_snapshot", "roundtrip_wired", "wire_snapshot"]

_WIRE: Final = "wire_snapshot"


@pytest.fixture
def call_snapshot(request: pytest.FixtureRequest) -> "CallSnapshot":
    """Compares a call with a readable text in `__snapshots__`: `assert call == call_snapshot`.

    `pytest --snapshot-update` writes it. `call_snapshot.redacting("card")` leaves out what fields hold.
    """
    snapshot = _syrupy(request)
    from roundtrip.testing.snapshots.extension import CallSnapshotExtension

    return _of(snapshot, CallSnapshotExtension)


@pytest.fixture
def wire_snapshot(request: pytest.FixtureRequest, roundtrip_wired: None) -> "CallSnapshot":
    """Compares every JSON-RPC message of a call, as `call_snapshot`. The test's users keep them, and speak HTTP."""
    snapshot = _syrupy(request)
    from roundtrip.testing.snapshots.extension import WireSnapshotExtension

    return _of(snapshot, WireSnapshotExtension)


# For every test, so that it comes before asynchronous fixtures, whose task keeps the context that it began with.
@pytest.fixture(autouse=True)
def roundtrip_wired(request: pytest.FixtureRequest, roundtrip_choice: Choice) -> Generator[None]:
    """Has the users of the test keep their messages, if there is a fixture that compares them."""
    if _WIRE not in request.fixturenames:
        yield
        return
    before = CHOSEN.set(replace(roundtrip_choice, wired=True))
    yield
    CHOSEN.reset(before)


def _syrupy(request: pytest.FixtureRequest) -> object:
    if find_spec("syrupy") is None:
        pytest.fail(f"{request.fixturename} needs syrupy: pip install 'roundtrip[testing]'", pytrace=False)
    try:
        return request.getfixturevalue("snapshot")
    except pytest.FixtureLookupError:
        pytest.fail(f"{request.fixturename} needs syrupy's plugin, and pytest was run without it", pytrace=False)


def _of(snapshot: object, extension: "type[CallSnapshotExtension]") -> "CallSnapshot":
    from syrupy.assertion import SnapshotAssertion

    from roundtrip.testing.snapshots.extension import CallSnapshot

    if not isinstance(snapshot, SnapshotAssertion):
        pytest.fail("the fixture `snapshot` is not syrupy's: another plugin has one of that name", pytrace=False)
    return CallSnapshot.like(snapshot, extension)
