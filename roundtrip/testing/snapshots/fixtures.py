"""The fixtures `call_snapshot` and `wire_snapshot`. Only who takes one needs syrupy."""

from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from roundtrip.testing.snapshots.extension import CallSnapshot, CallSnapshotExtension

__all__ = ["call_snapshot", "wire_snapshot"]


@pytest.fixture
def call_snapshot(request: pytest.FixtureRequest) -> "CallSnapshot":
    """Compares a call with a readable text in `__snapshots__`: `assert call == call_snapshot`.

    `pytest --snapshot-update` writes it. `call_snapshot.redacting("card")` leaves out what fields hold.
    """
    snapshot = _syrupy(request)
    from roundtrip.testing.snapshots.extension import CallSnapshotExtension

    return _of(snapshot, CallSnapshotExtension)


@pytest.fixture
def wire_snapshot(request: pytest.FixtureRequest) -> "CallSnapshot":
    """Compares every JSON-RPC message of a call, as `call_snapshot`. The test's users keep them, and speak HTTP."""
    snapshot = _syrupy(request)
    from roundtrip.testing.snapshots.extension import WireSnapshotExtension

    return _of(snapshot, WireSnapshotExtension)


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
