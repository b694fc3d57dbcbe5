"""The doctor's findings, case by case."""

from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import ValidationError

from roundtrip.doctor.facts import Facts, Live, Look, Observed, Place, ProbedCall, ProbedInstance, Reached, Said
from roundtrip.doctor.findings import Finding, Level, findings_of
from roundtrip.doctor.telling import as_lines
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
    observed = Observed([Place(f"http://{number}") for number, _ in enumerate(of)], **given)
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


def test_custom_codec_is_not_a_problem_in_itself() -> None:
    finding = only("keys", seen(facts(1, keys=()), facts(2, keys=())))
    assert finding.level is Level.NOTE


def test_single_instance_with_its_own_key_is_a_warning() -> None:
    assert only("keys", seen(facts(1, own_key=True))).level is Level.NOTE


CLOCKS: list[tuple[tuple[float, ...], Level]] = [
    ((0, 0, 1), Level.OK),
    ((0, 0, 45), Level.NOTE),
    ((0, -45, 0), Level.NOTE),
    ((45, -45, 0), Level.PROBLEM),
    ((0, 0, 600), Level.PROBLEM),
]


def test_clocks_are_held_against_each_other() -> None:
    found = [only("clock", seen(facts(1), facts(2), facts(3), offsets=offsets)).level for offsets, _ in CLOCKS]
    assert found == [level for _, level in CLOCKS]


def test_a_slow_network_is_not_taken_for_a_wrong_clock() -> None:
    assert only("clock", seen(facts(1), facts(2), offsets=(0, 70), uncertainty=6)).level is Level.NOTE


def test_wrong_clock_of_the_doctor_leaves_the_service_well() -> None:
    first, second = of("clock", seen(facts(1), facts(2), facts(3), offsets=(600, 600, 600)))
    assert (first.level, second.level) == (Level.OK, Level.NOTE)
    assert second.text == "this machine's clock is 10.0 min behind of the service's"


def test_instance_disagreeing_with_this_machine_is_the_wrong_one() -> None:
    assert "the clock of #2 is 10.0 min ahead" in only("clock", seen(facts(1), facts(2), offsets=(0, 600))).text


def test_tools_that_differ_are_named_up_to_a_number() -> None:
    many = {f"tool{number}": "1" for number in range(9)}
    text = only("build", seen(facts(1, tools={}), facts(2, build="b2", tools=many))).text
    assert "tool0, tool1, tool2, tool3, tool4 and 4 more" in text


def test_versions_that_differ_are_noted() -> None:
    builds = of("build", seen(facts(1), facts(2, roundtrip="2")))
    assert [finding.level for finding in builds] == [Level.OK, Level.NOTE]


KINDS = [
    ((("MemoryLedger", "process"),) * 2, "RedisLedger"),
    ((("SqliteLedger", "machine"), ("RedisLedger", "fleet")), "different kinds"),
    ((("SqliteLedger", "machine"),) * 2, "the same file"),
    ((("RedisLedger", "fleet"),) * 2, "database and prefix"),
]


def test_the_advice_on_ledgers_fits_their_kinds() -> None:
    def check(kinds: tuple[tuple[str, str], ...], advice: str) -> None:
        both = [
            facts(number, ledger=kind, reach=reach, exactly_once=True)
            for number, (kind, reach) in enumerate(kinds, start=1)
        ]
        observed = seen(*both, marker=both[0].instance)
        for instance, look in zip(observed.instances.values(), (Look.SEEN, Look.ABSENT), strict=True):
            instance.look = look
        finding = only("ledger", observed)
        assert finding.level is Level.PROBLEM
        assert advice in finding.advice

    check_each(KINDS, check)


def test_unseen_ledger_is_not_reported_as_shared() -> None:
    assert only("ledger", seen(facts(1, exactly_once=True), facts(2, exactly_once=True))).level is Level.NOTE


def test_unexplained_rejection_says_where_to_look() -> None:
    observed = seen(facts(1), facts(2))
    observed.journeys.append(ProbedCall(0, 1, Reached.REJECTED, facts(1).instance))
    finding = only("calls", observed)
    assert finding.level is Level.PROBLEM
    assert finding.text.endswith("were rejected: from #1 to #2")
    assert "read the log of the instance that rejected" in finding.advice


def test_calls_that_never_changed_their_instance_show_nothing() -> None:
    observed = seen(facts(1), facts(2))
    same = facts(1).instance
    observed.journeys.append(ProbedCall(0, 0, Reached.DONE, same, same))
    assert only("calls", observed).level is Level.NOTE


def test_intermittent_instance_behind_a_balancer_is_a_problem() -> None:
    observed = seen(facts(1))
    observed.places[0].failures, observed.places[0].probes = ["not-mcp: HTTP status 502"], 12
    assert "1 of 12 probes failed, the first with: not-mcp: HTTP status 502" in only("reach", observed).text


def test_unknown_older_client_is_quoted() -> None:
    observed = seen(facts(1))
    observed.places[0].older_clients, observed.places[0].older_clients_detail = Live.NO, "Session not found"
    assert "(Session not found)" in only("older clients", observed).text


HOSTILE: list[dict[str, Any]] = [
    {"instance": "../../etc"},
    {"name": "x" * 201},
    {"keys": ["k"] * 65},
    {"reach": "galaxy"},
    {"tools": {"x": 3}},
]


def test_an_answer_out_of_bounds_is_not_read() -> None:
    for hostile in HOSTILE:
        with pytest.raises(ValidationError):
            Said.model_validate({**facts(1).model_dump(), "clock": 1.0, **hostile})


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


def test_workers_that_were_not_met_are_counted() -> None:
    observed = seen(facts(1, group="g", workers=4), facts(2, group="g", workers=4), facts(3))
    assert observed.announced == 5
    note = next(finding for finding in findings_of(observed) if finding.topic == "instances")
    assert (note.level, note.text) == (
        Level.NOTE,
        "3 of 5 workers were met; the others were not compared",
    )
    *_, (_, ((summary, _),)) = as_lines(observed, [])
    assert summary == "3 of 5 instances met: no problems"


def test_stopping_rule_is_printed() -> None:
    observed = seen(facts(1), facts(2))
    for place, quiet in zip(observed.places, (8, 16), strict=True):
        place.quiet = quiet
    ok = next(finding for finding in findings_of(observed) if finding.topic == "instances")
    assert (ok.level, ok.text) == (Level.OK, "2 were met, and at each address the last 8 requests met no other")


def tasks(**given: Any) -> dict[str, Any]:
    return {"own_keys": ["new", "old"], "runs": True, **given}


def test_tasks_are_counted_by_state_and_key() -> None:
    found = only("tasks", seen(facts(1, tasks=tasks(states={"asking": 3, "due": 1}, keys={"new": 4}))))
    assert (found.level, found.text) == (Level.OK, "3 asking, 1 due; encrypted: 4 with new")


def test_former_keys_of_tasks_are_noted() -> None:
    found = only("tasks", seen(facts(1, tasks=tasks(states={"due": 2}, keys={"new": 1, "old": 1}))))
    assert (found.level, "former keys are in use: old" in found.text) == (Level.NOTE, True)
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
    assert (down.level, down.text) == (Level.PROBLEM, "#1: the store of tasks does not answer")
    assert (counted.level, counted.text) == (Level.OK, "1 due; encrypted: 1 with new")
    assert only("tasks", seen(facts(1, tasks={"down": True, "runs": True}))).level is Level.PROBLEM


def test_overdue_and_lost_tasks_are_found() -> None:
    overdue, lost = of("tasks", seen(facts(1, tasks=tasks(states={"due": 2, "lost": 1}, overdue=2, runs=False))))
    assert (overdue.level, overdue.text) == (
        Level.PROBLEM,
        "2 tasks have been due for more than a minute, and no instance that was met runs tasks",
    )
    assert (lost.level, lost.text) == (Level.NOTE, "1 tasks are lost, because their workers died")


def test_instances_with_tasks_must_share_a_ledger() -> None:
    one, other = facts(1, tasks=tasks()), facts(2, tasks=tasks())
    observed = seen(one, other, marker=one.instance)
    observed.instances[one.instance].look = Look.SEEN
    observed.instances[other.instance].look = Look.ABSENT
    assert only("ledger", observed).level is Level.PROBLEM
