"""Rules of visibility: later ones win, and they stay few."""

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from roundtrip.visibility.rules import Component, Visibility
from tests.kit.raised import raised
from tests.kit.tables import check_each
from tests.kit.tiers import examples
from tests.kit.waiting import WAIT

ADD = Component("tool", "add", tags=frozenset({"math", "public"}))
DROP = Component("tool", "drop", tags=frozenset({"admin"}), version="2.0")
GREET = Component("prompt", "add", tags=frozenset({"public"}))
LOG = Component("resource", "log", uri="file:///log", tags=frozenset({"admin"}))
PAGE = Component("resource", "page", uri="book://{title}/{page}")
ALL = (ADD, DROP, GREET, LOG, PAGE)


def seen(visibility: Visibility, components: Iterable[Component] = ALL) -> list[Component]:
    return [component for component in components if visibility.rules.sees(component)]


def hidden_by(**criteria: Any) -> list[Component]:
    visibility = Visibility()
    visibility.disable(**criteria)
    return [component for component in ALL if not visibility.rules.sees(component)]


SELECTED: list[tuple[dict[str, Any], list[Component]]] = [
    ({"keys": "tool:add"}, [ADD]),
    ({"keys": iter(["tool:drop"])}, [DROP]),
    ({"keys": {"tool:drop@2.0"}}, [DROP]),
    ({"keys": "tool:drop@1.0"}, []),
    ({"keys": "prompt:add"}, [GREET]),
    ({"keys": "resource:file:///log"}, [LOG]),
    ({"keys": "resource:book://{title}/{page}"}, [PAGE]),
    ({"keys": "template:book://{title}/{page}"}, [PAGE]),
    ({"names": "add"}, [ADD, GREET]),
    ({"names": ["log"]}, [LOG]),
    ({"names": ["file:///log"]}, [LOG]),
    ({"tags": "admin"}, [DROP, LOG]),
    ({"tags": {"math", "admin"}}, [ADD, DROP, LOG]),
    ({"names": {"add", "drop"}, "tags": {"public"}}, [ADD, GREET]),
    ({"names": {"add"}, "tags": {"public"}, "keys": {"tool:add", "tool:drop"}}, [ADD]),
]


def test_components_that_match_all_criteria_are_selected() -> None:
    def check(criteria: dict[str, Any], components: list[Component]) -> None:
        assert hidden_by(**criteria) == components

    check_each(SELECTED, check)


def test_enabling_only_some_hides_all_others_those_registered_later_too() -> None:
    visibility = Visibility()
    visibility.disable(names="add")
    visibility.enable(tags="public", only=True)
    assert seen(visibility) == [ADD, GREET]
    late = Component("tool", "late", since=visibility.stamp())
    assert not visibility.rules.sees(late)
    visibility.enable(names="late")
    assert visibility.rules.sees(late)
    # The matching ones may change again; what the allowlist left out stays out.
    visibility.disable(tags="public")
    assert seen(visibility) == []


def test_disabled_component_stays_hidden_until_enabled() -> None:
    visibility = Visibility()
    visibility.enable(names="draft")
    draft = Component("tool", "draft", since=visibility.stamp(), enabled=False)
    assert not visibility.rules.sees(draft)
    visibility.enable(names="other")
    assert not visibility.rules.sees(draft)
    visibility.enable(names="draft")
    assert visibility.rules.sees(draft)
    again = draft._replace(since=visibility.stamp())
    assert not visibility.rules.sees(again)


def test_only_later_allowlists_show_disabled_registrations() -> None:
    visibility = Visibility()
    visibility.enable(tags="public", only=True)
    draft = Component("tool", "draft", tags=frozenset({"public"}), since=visibility.stamp(), enabled=False)
    assert not visibility.rules.sees(draft)
    visibility.enable(tags="public", only=True)
    assert visibility.rules.sees(draft)


FORMS = "tool:NAME@VERSION, prompt:NAME, resource:URI, template:URI_TEMPLATE"
NOTHING = "must not be empty: it would match nothing"
REJECTED: list[tuple[dict[str, Any], str]] = [
    ({}, "must be given keys= (tool:NAME, "),
    ({"names": []}, NOTHING),
    ({"names": "add", "tags": ()}, NOTHING),
    ({"keys": iter(())}, NOTHING),
    ({"names": [1]}, "names= must be a string or an iterable of strings, got int"),
    *(({"keys": ["tool:add", key]}, FORMS) for key in ("add", "tools:add", "tool", "tool:", ":add", "")),
]


def test_criteria_that_can_select_nothing_are_rejected() -> None:
    def check(criteria: dict[str, Any], words: str) -> None:
        error = raised(Visibility().enable, **criteria, only=True)
        assert isinstance(error, (ValueError, TypeError))
        assert words in str(error)

    check_each(REJECTED, check)
    assert "must be given keys= (tool:NAME, " in str(raised(Visibility().disable, only=True))


def test_rules_object_changes_only_with_the_rules() -> None:
    visibility = Visibility()
    before = visibility.rules
    visibility.stamp()
    assert visibility.rules is before
    visibility.disable(names="add")
    assert visibility.rules is not before
    assert before.sees(ADD)


def test_repeated_switching_does_not_grow_the_rules() -> None:
    visibility = Visibility()
    for _ in range(100):
        visibility.disable(tags={"admin", "math"})
        visibility.enable(names="add", tags="admin")
        visibility.enable(names="add")
        visibility.disable(names=["drop", "add"])
    assert len(visibility.rules.latest_first) == 2
    visibility.enable(tags="public", only=True)
    assert len(visibility.rules.latest_first) == 1


def test_threads_that_switch_at_once_lose_no_rule() -> None:
    visibility = Visibility()

    def switch(number: int) -> None:
        for turn in range(50):
            visibility.disable(names=f"{number}-{turn}")

    threads = [threading.Thread(target=switch, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert len(visibility.rules.latest_first) == 400
    assert len({rule.serial for rule in visibility.rules.latest_first}) == 400


@dataclass(frozen=True)
class Registering:
    component: Component


@dataclass(frozen=True)
class Switching:
    enable: bool
    only: bool
    criteria: dict[str, frozenset[str]]


NAMES = ("a", "b", "c")
TAGS = ("x", "y")
registering = st.builds(
    Registering,
    st.builds(
        Component,
        kind=st.sampled_from(["tool", "prompt"]),
        name=st.sampled_from(NAMES),
        uri=st.none(),
        tags=st.frozensets(st.sampled_from(TAGS)),
        enabled=st.booleans(),
    ),
)
switching = st.builds(
    Switching,
    enable=st.booleans(),
    only=st.booleans(),
    criteria=st.fixed_dictionaries(
        {},
        optional={
            "keys": st.frozensets(
                st.sampled_from([f"{kind}:{name}" for kind in ("tool", "prompt") for name in NAMES]), min_size=1
            ),
            "names": st.frozensets(st.sampled_from(NAMES), min_size=1),
            "tags": st.frozensets(st.sampled_from(TAGS), min_size=1),
        },
    ).filter(bool),
)


def matches(component: Component, criteria: dict[str, frozenset[str]]) -> bool:
    facts = {
        "keys": {f"{component.kind}:{component.name}"},
        "names": {component.name},
        "tags": set(component.tags),
    }
    return all(facts[criterion] & wanted for criterion, wanted in criteria.items())


def plainly(events: list[Registering | Switching], index: int, component: Component) -> bool:
    """Apply the rules one by one, the last one wins, for the component that is registered at an index."""
    visible = True
    for place, event in enumerate(events):
        if place == index:
            visible = visible and component.enabled
        elif isinstance(event, Switching):
            if matches(component, event.criteria):
                visible = event.enable
            elif event.only:
                visible = not event.enable
    return visible


@settings(deadline=None, max_examples=examples(100))
@given(st.lists(registering | switching, max_size=12))
def test_the_rules_say_what_playing_all_events_through_says(events: list[Registering | Switching]) -> None:
    visibility = Visibility()
    registered: dict[int, Component] = {}
    for index, event in enumerate(events):
        if isinstance(event, Registering):
            registered[index] = event.component._replace(since=visibility.stamp())
        elif event.enable:
            visibility.enable(**event.criteria, only=event.only)
        else:
            visibility.disable(**event.criteria, only=event.only)
    for index, component in registered.items():
        assert visibility.rules.sees(component) == plainly(events, index, component)
