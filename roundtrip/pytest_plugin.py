"""pytest plugin: fixtures, and a marker that runs tests in both eras and under hostile networks.

Every pytest run in an environment with roundtrip imports this module, so hooks and fixtures import lazily.
"""

import sys
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

if TYPE_CHECKING:
    from roundtrip.client.legs import Era
    from roundtrip.testing.clocks import Clock
    from roundtrip.testing.snapshots.extension import CallSnapshot
    from roundtrip.testing.user_defaults import Override, Traces, UserDefaults

_RECORDING_FIXTURES: Final = frozenset({"trace", "wire_snapshot"})
"""Fixtures that record calls, and so must be set up before the test's first call."""


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers",
        "roundtrip(eras='both', hostile=False, without=(), deploy=None, secrets=(), over='memory'): run the test on "
        "these eras ('retry', 'live' or 'both'), as a task ('task'), or in all three ways ('all'); and "
        "under hostile networks (True for all, or a list)",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a marked test once for each era and network, and a test with the `roundtrip_era` fixture in both eras."""
    options = _mark_options(metafunc.definition)
    if options is None and "roundtrip_era" not in metafunc.fixturenames:
        return
    from roundtrip.testing.user_defaults import defaults_for_mark

    try:
        choices = defaults_for_mark(**options or {})
    except ValueError as error:
        raise pytest.UsageError(f"{metafunc.definition.nodeid}: @pytest.mark.roundtrip: {error}") from None
    metafunc.parametrize("roundtrip_choice", list(choices.values()), ids=list(choices), indirect=True)


def _mark_options(item: pytest.Function) -> dict[str, Any] | None:
    """Merge the options of a test's markers; the nearest marker wins. Return None for a test without a marker."""
    marks = list(item.iter_markers("roundtrip"))
    options: dict[str, Any] = {}
    for mark in reversed(marks):
        if len(mark.args) > 1:
            raise pytest.UsageError(
                f"{item.nodeid}: @pytest.mark.roundtrip takes the eras as its only positional argument"
            )
        if mark.args:
            options["eras"] = mark.args[0]
        options.update(mark.kwargs)
    return options if marks else None


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Skip a test if its network does not work with its user. Fail a test if none of its calls used its network."""
    try:
        returned = yield
    except pytest.fail.Exception as failure:
        # pytest fails an `async def` test that no plugin runs, and advises installing a plugin even if one is
        # installed.
        if pyfuncitem.get_closest_marker("roundtrip") is not None and "async def" in str(failure):
            raise pytest.fail.Exception(
                "no marker runs this async test; add @pytest.mark.anyio to it, or pytestmark = pytest.mark.anyio to "
                "its module",
                pytrace=False,
            ) from None
        raise
    except Exception as error:
        # Do not import the module: the exception can only come from a test that has already imported it.
        deliveries = sys.modules.get("roundtrip.testing.networks.deliveries")
        if deliveries is not None and isinstance(error, deliveries.Inapplicable):
            pytest.skip(str(error))
        raise
    choice: UserDefaults | None = cast("Any", pyfuncitem.funcargs.get("roundtrip_choice"))
    if choice is not None and choice.network and not choice.called_tools:
        pytest.fail(f"no call of this test went through the network {choice.network_name!r}", pytrace=False)
    return returned


# Apply this fixture to every test, because pytest can only parametrize fixtures that a test uses.
@pytest.fixture(autouse=True)
def roundtrip_choice(request: pytest.FixtureRequest) -> "Generator[UserDefaults | None]":
    """Set the defaults for the test's users: era, network and transport."""
    choice: UserDefaults | None = getattr(request, "param", None)
    if choice is None and request.node.get_closest_marker("roundtrip") is not None:
        pytest.fail(
            "@pytest.mark.roundtrip has no effect here: it cannot mark a method of unittest.TestCase, and cannot be "
            "added after collection (by an item's add_marker, or by marks= of pytest.param)",
            pytrace=False,
        )
    if choice is None and _RECORDING_FIXTURES.isdisjoint(request.fixturenames):
        yield None
        return
    from roundtrip.testing.user_defaults import defaults_for_test

    path = request.getfixturevalue("tmp_path") / "trace.jsonl" if "trace" in request.fixturenames else None
    with defaults_for_test(choice, messages="wire_snapshot" in request.fixturenames, trace=path) as chosen:
        yield chosen


@pytest.fixture
def roundtrip_era(roundtrip_choice: "UserDefaults") -> "Era":
    """Return the era in which the test and its users run. A test with this fixture runs in both eras."""
    return roundtrip_choice.era


@pytest.fixture
def clock() -> "Generator[Clock]":
    """Stop this process's clock until the test moves it: `clock.advance(seconds=601)`."""
    from roundtrip.testing.clocks import Clock

    with Clock().set() as clock:
        yield clock


@pytest.fixture
def overrides() -> "Generator[Override]":
    """Replace resolvers, dependencies or visibility gates in a test: `overrides(server, {fetch_price: lambda: 10})`."""
    from roundtrip.testing.user_defaults import overriding

    with overriding() as override:
        yield override


@pytest.fixture
def trace(roundtrip_choice: "UserDefaults | None") -> "Traces":
    """Record the calls that the test's users make to servers in this process, as `Server(trace=...)` would."""
    if roundtrip_choice is None or roundtrip_choice.recorder is None:
        pytest.fail("`trace` was requested too late: make it an argument of the test, or of one of its fixtures")
    from roundtrip.testing.user_defaults import Traces

    return Traces(roundtrip_choice.recorder.path)


@pytest.fixture
def call_snapshot(request: pytest.FixtureRequest) -> "CallSnapshot":
    """Compare a call with a readable text in `__snapshots__`: `assert call == call_snapshot`.

    `pytest --snapshot-update` writes the text. `call_snapshot.redacting("card")` redacts the fields with that name.
    """
    return _snapshot(request, "call")


@pytest.fixture
def wire_snapshot(request: pytest.FixtureRequest) -> "CallSnapshot":
    """Compare a call's JSON-RPC messages with a stored text, as `call_snapshot` does. The test's users record the
    messages over HTTP.
    """
    return _snapshot(request, "wire")


def _snapshot(request: pytest.FixtureRequest, kind: str) -> "CallSnapshot":
    try:
        from syrupy.assertion import SnapshotAssertion
    except ModuleNotFoundError:
        pytest.fail(f"{request.fixturename} needs syrupy: pip install 'mcp-roundtrip[testing]'", pytrace=False)
    try:
        snapshot = request.getfixturevalue("snapshot")
    except pytest.FixtureLookupError:
        pytest.fail(f"{request.fixturename} needs syrupy's plugin, and pytest was run without it", pytrace=False)
    if not isinstance(snapshot, SnapshotAssertion):
        pytest.fail("the fixture `snapshot` is not syrupy's; another plugin or conftest.py defines it", pytrace=False)
    from roundtrip.testing.snapshots.extension import CallSnapshot, CallSnapshotExtension, WireSnapshotExtension

    return CallSnapshot.like(snapshot, WireSnapshotExtension if kind == "wire" else CallSnapshotExtension)
