"""Hostile requests of apps, made from an honest answer."""

from typing import Any, Final

from roundtrip.testing.attacks.apps import AppAttack, bad_tickets, broken_answers, other_rounds
from roundtrip.untrusted import mapping_of

TICKET: Final = "NT-qaO_4yUje.8W1mfBqzGYn_SEznBVEMnQ"


def test_bad_tickets_open_nothing_and_differ() -> None:
    attacks = list(bad_tickets(TICKET))
    tickets = [attack.arguments["ticket"] for attack in attacks]
    assert TICKET not in tickets
    assert not any(attack.opens for attack in attacks)
    assert {type(ticket).__name__ for ticket in tickets} == {"str", "NoneType", "float", "bool", "list", "dict"}
    assert any(len(ticket) > 256 * 1024 for ticket in tickets if isinstance(ticket, str))


def test_earlier_answers_are_replayed_before_unknown_rounds() -> None:
    earlier: dict[str, Any] = {"ticket": TICKET, "round": "a", "answers": {}}
    first, *others = other_rounds([earlier])
    assert first == AppAttack("an answer that was sent before", earlier)
    assert all(set(other.arguments) == {"round"} and other.opens for other in others)


def test_each_control_that_counts_gets_a_broken_text() -> None:
    answers = {"decision": ["answer"], "q0-f0": ["1"], "q0-choice": ["yes"], "q1-f0": ["2"], "q1-choice": ["no"]}
    broken = {attack.description: attack.arguments["answers"] for attack in broken_answers(answers)}
    spoiled = [name for name in answers for changed in broken.values() if mapping_of(changed).get(name) == ["\0"]]
    assert spoiled == ["q0-f0"]
    assert answers not in broken.values()
    assert broken["no button"] == {name: texts for name, texts in answers.items() if name != "decision"}
    declined = [attack.arguments["answers"] for attack in broken_answers({"decision": ["decline"], "q0-f0": ["1"]})]
    assert not any(mapping_of(changed).get("q0-f0") == ["\0"] for changed in declined)
