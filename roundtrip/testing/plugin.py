"""The pytest plugin: a mark that runs tests on both eras of the protocol, and under hostile networks."""

from collections.abc import Generator, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal, cast

import pytest

from roundtrip.client.legs import ERAS, Era
from roundtrip.testing.chosen import CHOSEN, UserDefaults
from roundtrip.testing.fixtures import clock, overrides, trace
from roundtrip.testing.networks.choosing import choose, name_of
from roundtrip.testing.networks.deliveries import Inapplicable
from roundtrip.testing.networks.fleet import Make
from roundtrip.testing.snapshots.fixtures import call_snapshot, wire_snapshot
from roundtrip.trace.writing.recorder import Recorder

__all__ = [
    "call_snapshot",
    "clock",
    "overrides",
    "pytest_configure",
    "pytest_generate_tests",
    "pytest_pyfunc_call",
    "roundtrip_choice",
    "roundtrip_era",
    "trace",
    "wire_snapshot",
]

_ERAS: Final = {"retry": (Era.RETRY,), "live": (Era.LIVE,), "both": ERAS}
_FIXTURE: Final = "roundtrip_choice"
_OPTIONS: Final = ("eras", "hostile", "without", "deploy", "secrets", "over")


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    config.addinivalue_line(
        "markers",
        "roundtrip(eras='both', hostile=False, without=(), deploy=None, secrets=(), over='memory'): run the test on "
        "these eras of the protocol ('retry', 'live' or 'both'), and under hostile networks (True for all, or a list)",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a marked test once for each of its eras and networks, and one that asks for the era on both eras."""
    options = _options(metafunc.definition)
    if options is None and "roundtrip_era" not in metafunc.fixturenames:
        return
    try:
        choices = _choices(**options or {})
    except ValueError as error:
        raise pytest.UsageError(f"{metafunc.definition.nodeid}: @pytest.mark.roundtrip: {error}") from None
    metafunc.parametrize(_FIXTURE, list(choices.values()), ids=list(choices), indirect=True)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Generator[None, object, object]:
    """Skip where a network cannot be had with what the test gave its user."""
    try:
        returned = yield
    except Inapplicable as error:
        pytest.skip(str(error))
    choice = CHOSEN.get()
    if choice.network and not choice.carried:
        pytest.fail(f"no call of this test went through the network {name_of(choice.network)!r}", pytrace=False)
    return returned


def _options(item: pytest.Function) -> dict[str, Any] | None:
    """What the marks of a test say, those nearest to it first; None without a mark."""
    options: dict[str, Any] = {}
    marked = False
    for mark in item.iter_markers("roundtrip"):
        marked = True
        if len(mark.args) > 1:
            raise pytest.UsageError(f"{item.nodeid}: @pytest.mark.roundtrip takes everything but the eras by keyword")
        given: dict[str, Any] = {"eras": mark.args[0]} if mark.args else {}
        options = {**given, **mark.kwargs, **options}
    return options if marked else None


def _choices(
    eras: object = "both",
    hostile: object = False,
    without: Iterable[str] = (),
    deploy: Make | None = None,
    secrets: Sequence[str] = (),
    over: Literal["memory", "http"] = "memory",
    **unknown: object,
) -> dict[str, UserDefaults]:
    """Every way in which a test is to be run, by its name."""
    if unknown:
        raise ValueError(f"{', '.join(unknown)} is no option of it; there are {', '.join(_OPTIONS)}")
    chosen = _ERAS.get(eras) if isinstance(eras, str) else None
    if chosen is None:
        raise ValueError(f"eras={eras!r}: eras are {', '.join(map(repr, _ERAS))}")
    if over not in ("memory", "http"):
        raise ValueError(f"over={over!r}: it is 'memory' or 'http'")
    if hostile is False and (without or deploy is not None or secrets):
        raise ValueError("without=, deploy= and secrets= say something of hostile=, which is not there")
    choices = {era.name.lower(): UserDefaults(era, over=over) for era in chosen}
    for stack in choose(hostile, without=without, deploy=deploy, secrets=secrets):
        name = name_of(stack)
        alike = sum(one == name or one.startswith(f"{name}#") for one in choices)
        choices[f"{name}#{alike + 1}" if alike else name] = UserDefaults(Era.RETRY, stack, over=over)
    return choices


# For every test, as only fixtures that a test has can be parametrized.
@pytest.fixture(autouse=True)
def roundtrip_choice(request: pytest.FixtureRequest) -> Generator[UserDefaults]:
    """How the users of the test speak, and who listens."""
    choice = cast("UserDefaults | None", getattr(request, "param", None))
    if choice is None:
        if request.node.get_closest_marker("roundtrip") is not None:
            pytest.fail(
                "@pytest.mark.roundtrip has no effect here: on a method of unittest's TestCase, or added when tests "
                "had been collected (by an item's add_marker, or marks= of pytest.param)",
                pytrace=False,
            )
        choice = UserDefaults()
    # Of one choice there may be several tests, with other parameters besides.
    choice = replace(choice, carried=[])
    if "wire_snapshot" in request.fixturenames:
        choice = replace(choice, wired=True)
    if "trace" in request.fixturenames:
        path: Path = request.getfixturevalue("tmp_path") / "trace.jsonl"
        choice = replace(choice, recorder=Recorder(path, reveal="all", instance="test"))
    before = CHOSEN.set(choice)
    yield choice
    CHOSEN.set(before)


@pytest.fixture
def roundtrip_era(roundtrip_choice: UserDefaults) -> Era:
    """The era that the test runs on, and that its users speak. A test that takes it runs on both."""
    return roundtrip_choice.era
