"""The doctor's findings, case by case."""

from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import ValidationError

from roundtrip.cli.running.doctor import as_lines
from roundtrip.doctor.facts import (
    Endpoint,
    Facts,
    InstanceReport,
    LedgerCheck,
    LiveQuestion,
    Observed,
    ProbedCall,
    ProbedInstance,
    ProbeOutcome,
)
from roundtrip.doctor.findings import Finding, Level, findings_of
from tests.kit.tables import check_each


def facts(number: int, **given: Any) -> Facts:
    said: dict[str, Any] = {
        "instance": f"{number:012x}",
        "roundtrip": "1",
        "mcp": "2",
        "python": "3.11",
        "name": "shop",
        "keys": ("old",),
        "own_key": False,
        "audience": "shop",
        "build": "b1",
        "tools": {"order": "1"},
        "ledger": "MemoryLedger",
        "reach": "process",
        "exactly_once": False,
        "caller": None,
    }
    return Facts.model_validate({**said, **given})


def seen(*of: Facts, offsets: Sequence[float] = (), uncertainty: float = 0.01, **given: Any) -> Observed:
    """Return observations of instances, each at its own address."""
    observed = Observed([Endpoint(f"http://{number}") for number, _ in enumerate(of)], **given)
    for number, one in enumerate(of):
        offset = offsets[number] if offsets else 0.0
        observed.instances[one.instance] = ProbedInstance(one, {number}, offset, uncertainty)
    return observed


def of(topic: str, observed: Observed) -> list[Finding]:
    return [finding for finding in findings_of(observed) if finding.topic == topic]


def only(topic: str, observed: Observed) -> Finding:
    (finding,) = of(topic, observed)
    return finding


def test_single_instance_is_no_problem_but_proves_little() -> None:
    levels = {finding.level for finding in findings_of(seen(facts(1)))}
    assert levels == {Level.NOTE, Level.OK}


def test_three_meeting_rotation_phases_are_reported_one_by_one() -> None:
    first, second, third = facts(1), facts(2, keys=("old", "new")), facts(3, keys=("new", "old"))
    assert only("keys", seen(first, second)).level is Level.NOTE
    assert only("keys", seen(second, third)).level is Level.NOTE
    finding = only("keys", seen(first, second, third))
    assert finding.level is Level.PROBLEM
    assert finding.text == "#1 cannot read what #3 signs with new"
    assert "first [old, new] on every instance" in finding.advice


def clocks(*offsets: float, **given: Any) -> Observed:
    return seen(*(facts(number) for number, _ in enumerate(offsets, start=1)), offsets=offsets, **given)


def test_levels_fit_what_was_seen() -> None:
    def check(topic: str, observed: Observed, levels: list[Level]) -> None:
        assert [finding.level for finding in of(topic, observed)] == levels

    apart = seen(facts(1, exactly_once=True), facts(2, exactly_once=True))
    rows: list[tuple[str, Observed, list[Level]]] = [
        ("keys", seen(facts(1, keys=()), facts(2, keys=())), [Level.NOTE]),
        ("keys", seen(facts(1, own_key=True)), [Level.NOTE]),
        ("clock", clocks(0, 0, 1), [Level.OK]),
        ("clock", clocks(0, 0, 45), [Level.NOTE]),
        ("clock", clocks(0, -45, 0), [Level.NOTE]),
        ("clock", clocks(45, -45, 0), [Level.PROBLEM]),
        ("clock", clocks(0, 0, 600), [Level.PROBLEM]),
        ("clock", clocks(0, 70, uncertainty=6), [Level.NOTE]),
        ("ledger", apart, [Level.NOTE]),
        ("build", seen(facts(1), facts(2, roundtrip="2")), [Level.OK, Level.NOTE]),
    ]
    check_each(rows, check)


def test_wrong_clock_is_named() -> None:
    first, second = of("clock", clocks(600, 600, 600))
    assert (first.level, second.level) == (Level.OK, Level.NOTE)
    assert second.text == "this machine's clock is 10.0 min behind the service"
    assert "#2's clock is 10.0 min ahead" in only("clock", clocks(0, 600)).text


def test_tools_that_differ_are_named_up_to_a_number() -> None:
    many = {f"tool{number}": "1" for number in range(9)}
    text = only("build", seen(facts(1, tools={}), facts(2, build="b2", tools=many))).text
    assert "tool0, tool1, tool2, tool3, tool4 and 4 more" in text


PAYS: dict[str, Any] = {"exactly_once": True}
KINDS: list[tuple[tuple[str, str], tuple[str, str], dict[str, Any], str]] = [
    (("MemoryLedger", "process"), ("MemoryLedger", "process"), PAYS, "RedisLedger"),
    (("SqliteLedger", "machine"), ("RedisLedger", "fleet"), PAYS, "different ledgers"),
    (("SqliteLedger", "machine"), ("SqliteLedger", "machine"), PAYS, "the same file"),
    (("RedisLedger", "fleet"), ("RedisLedger", "fleet"), PAYS, "database and prefix"),
    (("MemoryLedger", "process"), ("MemoryLedger", "process"), {"tasks": {"own_keys": ["new"], "runs": True}}, ""),
]


def test_the_advice_on_ledgers_fits_their_kinds() -> None:
    def check(one: tuple[str, str], other: tuple[str, str], given: dict[str, Any], advice: str) -> None:
        both = [
            facts(number, ledger=kind, reach=reach, **given)
            for number, (kind, reach) in enumerate((one, other), start=1)
        ]
        observed = seen(*both, marker=both[0].instance)
        for instance, look in zip(observed.instances.values(), (LedgerCheck.SEEN, LedgerCheck.ABSENT), strict=True):
            instance.look = look
        finding = only("ledger", observed)
        assert finding.level is Level.PROBLEM
        assert advice in finding.advice

    check_each(KINDS, check)


def test_calls_are_judged_by_their_ends_elsewhere() -> None:
    rejected, same = seen(facts(1), facts(2)), seen(facts(1), facts(2))
    instance = facts(1).instance
    rejected.journeys.append(ProbedCall(0, 1, ProbeOutcome.REJECTED, instance))
    same.journeys.append(ProbedCall(0, 0, ProbeOutcome.DONE, instance, instance))
    finding = only("calls", rejected)
    assert finding.level is Level.PROBLEM
    assert finding.text.endswith("were rejected: from #1 to #2")
    assert "read the log of the instance that rejected" in finding.advice
    assert only("calls", same).level is Level.NOTE


def test_what_an_address_answered_is_quoted() -> None:
    observed = seen(facts(1))
    endpoint = observed.endpoints[0]
    endpoint.failures, endpoint.probes = ["not-mcp: HTTP status 502"], 12
    endpoint.older_clients, endpoint.older_clients_detail = LiveQuestion.NO, "Session not found"
    assert "1 of 12 probes failed, the first with: not-mcp: HTTP status 502" in only("reach", observed).text
    assert "(Session not found)" in only("older clients", observed).text


def test_pages_that_leave_app_hosts_with_a_link_or_an_error_are_found() -> None:
    def found(*channels: str) -> list[tuple[Level, str, str]]:
        topics = of("apps", seen(facts(1, channels=channels)))
        return [(one.level, one.text.split(", ")[-1], one.advice.partition("(")[0]) for one in topics]

    assert found("form") == found("form", "local") == []
    assert [level for level, _, _ in found("form", "url", "app", "link")] == [Level.OK]
    by_link = (Level.NOTE, "get a link to a question page", "Remove app=False from Pages")
    assert found("form", "url", "link") == [by_link]
    assert found("form", "url") == [(Level.NOTE, "get an error", "Add Pages")]


def test_an_answer_out_of_bounds_is_not_read() -> None:
    def check(hostile: dict[str, Any]) -> None:
        with pytest.raises(ValidationError):
            InstanceReport.model_validate({**facts(1).model_dump(), "clock": 1.0, **hostile})

    check_each(
        [
            {"instance": "../../etc"},
            {"name": "x" * 201},
            {"keys": ["k"] * 65},
            {"reach": "galaxy"},
            {"tools": {"x": 3}},
        ],
        check,
    )


def test_report_without_an_instance_says_so() -> None:
    observed = Observed([])
    (_, last) = list(as_lines(observed, findings_of(observed)))
    assert last == (0, (("0 instances met: no problems", "bold"),))


def test_report_says_which_way_an_instance_serves_requests() -> None:
    observed = seen(facts(1, transport="the fast lane"), facts(2))
    lines = [
        "".join(part if isinstance(part, str) else part[0] for part in parts) for _, parts in as_lines(observed, [])
    ]
    assert [line.endswith("; served by the fast lane") for line in lines if "Python" in line] == [True, False]


def test_instances_that_were_met_are_counted() -> None:
    observed = seen(facts(1, group="g", workers=4), facts(2, group="g", workers=4), facts(3))
    assert observed.announced == 5
    note = only("instances", observed)
    assert (note.level, note.text) == (Level.NOTE, "found 3 of 5 workers; the others were not compared")
    *_, (_, ((summary, _),)) = as_lines(observed, [])
    assert summary == "3 of 5 instances met: no problems"
    observed = seen(facts(1), facts(2))
    for endpoint, quiet in zip(observed.endpoints, (8, 16), strict=True):
        endpoint.quiet = quiet
    ok = only("instances", observed)
    assert (ok.level, ok.text) == (Level.OK, "found 2, and the last 8 requests at each address found no others")


def tasks(**given: Any) -> dict[str, Any]:
    return {"own_keys": ["new", "old"], "runs": True, **given}


def test_tasks_are_counted_and_their_former_keys_noted() -> None:
    found = only("tasks", seen(facts(1, tasks=tasks(states={"asking": 3, "due": 1}, keys={"new": 4}))))
    assert (found.level, found.text) == (Level.OK, "3 asking, 1 due; encrypted: 4 with new")
    found = only("tasks", seen(facts(1, tasks=tasks(states={"due": 2}, keys={"new": 1, "old": 1}))))
    assert (found.level, "old keys are in use: old" in found.text) == (Level.NOTE, True)
    assert "rekey" in found.advice


def test_unknown_keys_of_tasks_are_a_problem_of_the_instance() -> None:
    stored = {"states": {"due": 3}, "keys": {"new": 1, "newest": 2}}
    found = of(
        "tasks",
        seen(facts(1, tasks=tasks(**stored)), facts(2, tasks={**tasks(**stored), "own_keys": ["newest", "new"]})),
    )
    assert next((one.level, one.text) for one in found) == (
        Level.PROBLEM,
        "#1 cannot read 2 tasks, which are encrypted with newest",
    )
    assert all("#2 cannot" not in one.text for one in found)


def test_store_of_tasks_that_is_down_is_a_problem_of_the_instance() -> None:
    stored = tasks(states={"due": 1}, keys={"new": 1})
    down, counted = of("tasks", seen(facts(1, tasks={"down": True, "runs": True}), facts(2, tasks=stored)))
    assert (down.level, down.text) == (Level.PROBLEM, "#1: the task store does not answer")
    assert (counted.level, counted.text) == (Level.OK, "1 due; encrypted: 1 with new")
    assert only("tasks", seen(facts(1, tasks={"down": True, "runs": True}))).level is Level.PROBLEM


def test_keys_that_results_of_intents_need_are_named() -> None:
    def one(**given: Any) -> dict[str, Any]:
        return {"intents": {"own_keys": ["new", "old"], **given}}

    def check(given: dict[str, Any], level: Level, text: str) -> None:
        found = only("intents", seen(facts(1, **one(**given))))
        assert (found.level, found.text) == (level, text)
        assert ("rekey" in found.advice) == (level is not Level.OK)

    check_each(
        [
            ({}, Level.OK, "encrypted: none"),
            ({"keys": {"new": 2}}, Level.OK, "encrypted: 2 with new"),
            (
                {"keys": {"new": 1, "old": 2}},
                Level.NOTE,
                "encrypted: 1 with new, 2 with old; old keys are in use: old",
            ),
            (
                {"keys": {"new": 1}, "is_whole": False},
                Level.NOTE,
                "encrypted: 1 with new; not all entries were counted, so others may need an old key",
            ),
        ],
        check,
    )
    unread, *_ = of("intents", seen(facts(1, **one(keys={"lost": 3}))))
    assert (unread.level, unread.text) == (
        Level.PROBLEM,
        "#1 cannot read 3 results of intents, which are encrypted with lost",
    )
    assert not of("intents", seen(facts(1)))


def test_overdue_and_lost_tasks_are_found() -> None:
    overdue, lost = of("tasks", seen(facts(1, tasks=tasks(states={"due": 2, "lost": 1}, overdue=2, runs=False))))
    assert (overdue.level, overdue.text) == (
        Level.PROBLEM,
        "2 tasks are more than a minute overdue, and none of the instances runs tasks",
    )
    assert (lost.level, lost.text) == (Level.NOTE, "1 tasks were lost because their workers died")
