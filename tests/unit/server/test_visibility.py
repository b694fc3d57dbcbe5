"""Rules of visibility: later ones win, and they stay few."""

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roundtrip.server.visibility import Component, Visibility
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
    return [component for component in components if visibility.sees(component)]


def hidden_by(**criteria: Any) -> list[Component]:
    visibility = Visibility()
    visibility.disable(**criteria)
    return [component for component in ALL if not visibility.sees(component)]


def test_everything_is_visible_until_a_rule_says_otherwise() -> None:
    assert seen(Visibility()) == list(ALL)


def test_a_key_selects_one_component() -> None:
    def check(key: str, component: Component) -> None:
        assert hidden_by(keys={key}) == hidden_by(keys=key) == hidden_by(keys=iter([key])) == [component]

    keys = {
        "tool:add": ADD,
        "tool:drop": DROP,
        "tool:drop@2.0": DROP,
        "prompt:add": GREET,
        "resource:file:///log": LOG,
        "resource:book://{title}/{page}": PAGE,
        "template:book://{title}/{page}": PAGE,
    }
    check_each(keys.items(), check)
    assert hidden_by(keys="tool:drop@1.0") == []


def test_name_selects_components_and_uri_selects_resources() -> None:
    assert hidden_by(names="add") == [ADD, GREET]
    assert hidden_by(names=["log"]) == hidden_by(names=["file:///log"]) == [LOG]


def test_any_of_several_tags_selects() -> None:
    assert hidden_by(tags="admin") == [DROP, LOG]
    assert hidden_by(tags={"math", "admin"}) == [ADD, DROP, LOG]


def test_several_criteria_must_all_match() -> None:
    assert hidden_by(names={"add", "drop"}, tags={"public"}) == [ADD, GREET]
    assert hidden_by(names={"add"}, tags={"public"}, keys={"tool:add", "tool:drop"}) == [ADD]


def test_a_later_call_wins() -> None:
    visibility = Visibility()
    visibility.disable(tags="public")
    visibility.enable(names="add", keys="tool:add")
    assert ADD in seen(visibility)
    assert GREET not in seen(visibility)
    visibility.disable(tags="math")
    assert ADD not in seen(visibility)


def test_enabling_only_some_hides_all_others_those_registered_later_too() -> None:
    visibility = Visibility()
    visibility.disable(names="add")
    visibility.enable(tags="public", only=True)
    assert seen(visibility) == [ADD, GREET]
    late = Component("tool", "late", since=visibility.stamp())
    assert not visibility.sees(late)
    visibility.enable(names="late")
    assert visibility.sees(late)
    # The matching ones may change again; what the allowlist left out stays out.
    visibility.disable(tags="public")
    assert seen(visibility) == []


def test_disabling_only_some_shows_all_others() -> None:
    visibility = Visibility()
    visibility.disable(tags={"public", "admin"})
    visibility.disable(names="page", only=True)
    assert seen(visibility) == [ADD, DROP, GREET, LOG]


def test_disabled_component_stays_hidden_until_enabled() -> None:
    visibility = Visibility()
    visibility.enable(names="draft")
    draft = Component("tool", "draft", since=visibility.stamp(), enabled=False)
    assert not visibility.sees(draft)
    visibility.enable(names="other")
    assert not visibility.sees(draft)
    visibility.enable(names="draft")
    assert visibility.sees(draft)
    again = draft._replace(since=visibility.stamp())
    assert not visibility.sees(again)


def test_only_later_allowlists_show_disabled_registrations() -> None:
    visibility = Visibility()
    visibility.enable(tags="public", only=True)
    draft = Component("tool", "draft", tags=frozenset({"public"}), since=visibility.stamp(), enabled=False)
    assert not visibility.sees(draft)
    visibility.enable(tags="public", only=True)
    assert visibility.sees(draft)


def test_disabling_only_others_shows_what_was_registered_disabled() -> None:
    visibility = Visibility()
    draft = Component("tool", "draft", since=visibility.stamp(), enabled=False)
    visibility.disable(names="other", only=True)
    assert visibility.sees(draft)


def test_call_without_a_criterion_explains_the_options() -> None:
    for call in (Visibility().enable, Visibility().disable):
        with pytest.raises(ValueError, match=r"must get keys= \(tool:NAME, .*\), names= or tags="):
            call(only=True)


def test_an_empty_criterion_is_rejected_as_it_would_match_nothing() -> None:
    criteria: list[dict[str, Any]] = [{"names": []}, {"names": "add", "tags": ()}, {"keys": iter(())}]
    for one in criteria:
        with pytest.raises(ValueError, match="must not be empty: it would match nothing"):
            Visibility().enable(**one, only=True)


def test_key_of_unknown_form_is_rejected_with_the_forms() -> None:
    def check(key: str) -> None:
        error = raised(hidden_by, keys=["tool:add", key])
        assert isinstance(error, ValueError)
        assert "tool:NAME@VERSION, prompt:NAME, resource:URI, template:URI_TEMPLATE" in str(error)

    check_each(["add", "tools:add", "tool", "tool:", ":add", ""], check)


def test_non_string_is_rejected() -> None:
    with pytest.raises(TypeError, match="names= must be a string or an iterable of strings, got int"):
        hidden_by(names=[1])


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
        assert visibility.sees(component) == plainly(events, index, component)
