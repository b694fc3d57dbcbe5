"""Findings about a service. They are derived from the observations, without sending further requests."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from statistics import median
from typing import Final, TypeVar

from roundtrip.doctor.facts import (
    Facts,
    KeyFacts,
    LedgerCheck,
    LiveQuestion,
    Observed,
    Obstacle,
    ProbedCall,
    ProbedInstance,
    ProbeOutcome,
    TaskFacts,
)
from roundtrip.legs.requests import SKEW
from roundtrip.text import build_text

T = TypeVar("T")

_MAX_SKEW_SECONDS: Final = SKEW
"""The largest clock difference that tokens tolerate."""
_NOTED_SKEW_SECONDS: Final = 5.0
_SAME_KEYS: Final = "Give all instances the same ROUNDTRIP_KEY_FILE or ROUNDTRIP_KEYS, or the same keys=."
_NO_WAY_BACK: Final = "no way back"
"""Part of the error from a server that has no connection over which it can ask an older client."""
_MAX_NAMED_TOOLS: Final = 5
_LEDGER_RETRY: Final = "Run this again; the probe sets a limited number of marks per minute."
_REKEY: Final = "Before you remove an old key, run `roundtrip calls rekey --server MODULE:SERVER`."
_APP_HOSTS: Final = "clients that show MCP Apps and no forms, such as claude.ai and ChatGPT,"
_NTP: Final = "Synchronize all machines with NTP (`timedatectl`, `chronyc tracking`)."
_UNEXPLAINED: Final = (
    "The reports do not show the reason. Compare principal= and request_state_security=, check whether a proxy changes "
    "requests, and read the log of the instance that rejected the call: it names the reason."
)


class Level(StrEnum):
    """A finding's severity."""

    OK = "ok"
    NOTE = "note"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """A conclusion from the observations, with advice."""

    level: Level
    topic: str
    text: str
    advice: str = ""


_Entry = tuple[Level, str] | tuple[Level, str, str]
"""A finding without its topic."""


def findings_of(seen: Observed) -> list[Finding]:
    """Return all findings. Findings about addresses come first."""
    checks: Sequence[tuple[str, Callable[[Observed], Iterator[_Entry]]]] = (
        ("reach", _endpoints),
        ("instances", _number),
        ("keys", _keys),
        ("audience", _audiences),
        ("caller", _callers),
        ("clock", _clocks),
        ("build", _builds),
        ("ledger", _ledgers),
        ("tasks", _tasks),
        ("intents", _intents),
        ("calls", _calls),
        ("older clients", _older_clients),
        ("apps", _apps),
    )
    return [Finding(level, topic, *texts) for topic, check in checks for level, *texts in check(seen)]


def _endpoints(seen: Observed) -> Iterator[_Entry]:
    for endpoint in seen.endpoints:
        if endpoint.trouble is not None:
            text, advice = _PROBLEM_TEXTS[endpoint.trouble]
            detail = f" ({endpoint.detail})" if endpoint.detail and endpoint.trouble is not Obstacle.NO_PROBE else ""
            yield Level.PROBLEM, f"{endpoint.url}: {text}{detail}", advice
        elif endpoint.failures:
            text = f"{endpoint.url}: {len(endpoint.failures)} of {endpoint.probes} probes failed, the first with: "
            advice = "An instance behind this address is down or does not answer the probe. Try the instance's address."
            yield Level.PROBLEM, text + endpoint.failures[0], advice
        if endpoint.ready == 503:
            advice = "The instance still answers requests; its log has the reason."
            yield Level.PROBLEM, f"{endpoint.url}: /health/ready reports that the instance is not ready", advice


_PROBLEM_TEXTS: Final = {
    Obstacle.UNREACHABLE: ("no server answers", "Is the instance running, and is the address correct?"),
    Obstacle.TIMEOUT: ("no answer in time", "Is it overloaded, or does a firewall drop packets? See --timeout."),
    Obstacle.TLS: ("TLS fails", "Is the certificate valid for this host name, and does this machine trust its issuer?"),
    Obstacle.FORBIDDEN: ("the server requires credentials", "Pass them: --header 'Authorization: Bearer ${TOKEN}'."),
    Obstacle.NOT_FOUND: ("there is no MCP server at this path", "The path is /mcp unless the server sets another one."),
    Obstacle.NOT_MCP: ("the response is not MCP", "Is this another service's address, or a proxy's error page?"),
    Obstacle.OLD: (
        "the server does not support any protocol revision that returns questions",
        "The server does not use roundtrip, or a proxy removes headers or fields that it does not know.",
    ),
    Obstacle.NO_PROBE: (
        "this MCP server has no probe",
        "If it is a roundtrip.Server, start it with ROUNDTRIP_PROBE=1, or Server(..., probe=True). FastMCP and SDK "
        "servers cannot be probed, even after install(); examine them with roundtrip audit.",
    ),
    Obstacle.STRANGE: ("the probe's answer is not valid", "Does the server have another tool named roundtrip_probe?"),
}


def _number(seen: Observed) -> Iterator[_Entry]:
    count = len(seen.instances)
    if seen.expected is not None and count < seen.expected:
        text = f"found {count} of {seen.expected} instances"
        yield Level.PROBLEM, text, "Are the others running, and does the load balancer know them?"
    elif count < seen.announced:
        text = f"found {count} of {seen.announced} workers; the others were not compared"
        advice = "Run this again: workers share a socket, and a few idle workers may get all requests."
        yield Level.NOTE, text, advice
    elif count > 1:
        quiet = min((endpoint.quiet for endpoint in seen.endpoints if endpoint.trouble is None), default=0)
        if any(facts.workers is not None for facts in _facts(seen)):
            how = "as many as the servers report"
        else:
            where = "" if len(seen.endpoints) == 1 else " at each address"
            how = f"and the last {quiet} requests{where} found no others"
        yield Level.OK, f"found {count}, {how}"
    if count == 1 and seen.expected != 1:
        text = "found only one instance, so there is nothing to compare"
        advice = "To compare instances, pass each instance's address, or a load balancer's."
        yield Level.NOTE, text, advice


def _keys(seen: Observed) -> Iterator[_Entry]:
    everyone = _facts(seen)
    own = [facts for facts in everyone if facts.own_key]
    if own and len(everyone) > 1:
        text = f"{_labels(seen, own)}: the process made its own key, so no other instance has it"
        yield Level.PROBLEM, text, _SAME_KEYS
    elif own:
        text = (
            f"{_labels(seen, own)} made its own key, so neither a second instance nor a restarted process can resume "
            "its calls"
        )
        yield Level.NOTE, text, "Set keys=, or ROUNDTRIP_KEYS, before you add a second instance."
    unknown = [facts for facts in everyone if not facts.keys]
    if unknown and len(everyone) > 1:
        text = f"{_labels(seen, unknown)}: the application has a custom codec, so its keys cannot be compared"
        yield Level.NOTE, text, "The finding about calls shows whether calls moved between instances."
    if own:
        return
    rings = [(keys, members) for keys, members in _grouped(seen, lambda facts: facts.keys).items() if keys]
    problems = [
        problem
        for (one, ones), (other, others) in combinations(rings, 2)
        if (problem := _between_rings(one, _labels(seen, ones), other, _labels(seen, others), len(ones))) is not None
    ]
    yield from problems or _readable_rings(seen, rings)


def _readable_rings(seen: Observed, rings: Sequence[tuple[tuple[str, ...], list[Facts]]]) -> Iterator[_Entry]:
    texts = [
        f"{_labels(seen, members)} sign{'s' if len(members) == 1 else ''} with {keys[0]}"
        + (f" and also read{'s' if len(members) == 1 else ''} {', '.join(keys[1:])}" if keys[1:] else "")
        for keys, members in rings
    ]
    if len(texts) == 1 and len(rings[0][1]) > 1:
        yield Level.OK, texts[0]
    elif len(texts) > 1:
        advice = "Instances can read each other's tokens, so no call is lost. A rotation is under way; finish it."
        yield Level.NOTE, "; ".join(texts), advice


def _between_rings(
    one: tuple[str, ...], left: str, other: tuple[str, ...], right: str, left_count: int
) -> _Entry | None:
    forth, back = one[0] in other, other[0] in one
    if forth and back:
        return None
    if not set(one) & set(other):
        have = "has" if left_count == 1 else "have"
        text = f"{left} {have} no key in common with {right} ({', '.join(one)}; {', '.join(other)})"
        return Level.PROBLEM, text, _SAME_KEYS
    losses = {
        f"{right} cannot read what {left} signs with {one[0]}": not forth,
        f"{left} cannot read what {right} signs with {other[0]}": not back,
    }
    advice = (
        "All instances must know a new key before one signs with it: first [old, new] on every instance, then "
        "[new, old] on every instance, then [new]."
    )
    return Level.PROBLEM, "; ".join(text for text, lost in losses.items() if lost), advice


def _audiences(seen: Observed) -> Iterator[_Entry]:
    groups = _grouped(seen, lambda facts: facts.audience)
    if len(groups) > 1:
        text = f"the instances have different token audiences: {_group_text(seen, groups)}"
        advice = "Give all instances of the service the same audience=, or the same name if they have no audience=."
        yield Level.PROBLEM, text, advice
    elif len(seen.instances) > 1:
        yield Level.OK, f"all instances issue tokens for {next(iter(groups))!r}"


def _callers(seen: Observed) -> Iterator[_Entry]:
    groups = _grouped(seen, lambda facts: facts.caller or "anonymous")
    if len(groups) > 1:
        text = "the instances see different callers in the same request, so they reject each other's calls"
        advice = "Give all instances the same principal= and auth. A proxy must pass on the caller's credentials."
        yield Level.PROBLEM, f"{text}: {_group_text(seen, groups)}", advice


def _clocks(seen: Observed) -> Iterator[_Entry]:
    instances = list(seen.instances.values())
    if not instances:
        return
    if len(instances) == 1:
        (only,) = instances
        if abs(only.offset) - only.uncertainty > _MAX_SKEW_SECONDS:
            label = seen.label(only.facts.instance)
            text = f"{label}'s clock is {_ahead(only.offset, 'this machine')}; one of them is wrong"
            yield Level.NOTE, text, _NTP
        return
    # Include this machine's clock in the median, because two clocks cannot show which of them is wrong.
    truth = median([0.0, *(instance.offset for instance in instances)])
    spread = _spread(instances)
    if spread > _MAX_SKEW_SECONDS:
        wrong = [instance for instance in instances if abs(instance.offset - truth) > _MAX_SKEW_SECONDS / 2]
        clocks = "; ".join(
            f"{seen.label(one.facts.instance)}'s clock is {_ahead(one.offset - truth, 'the others')}" for one in wrong
        )
        text = f"{clocks}; if the difference exceeds {_MAX_SKEW_SECONDS:g} s, instances reject each other's calls"
        yield Level.PROBLEM, text, _NTP
    elif spread > _NOTED_SKEW_SECONDS:
        text = f"the clocks differ by {_seconds(spread)}; instances tolerate up to {_MAX_SKEW_SECONDS:g} s"
        yield Level.NOTE, text, f"Calls may expire earlier or later by this difference. {_NTP}"
    else:
        yield Level.OK, f"the clocks agree within {_NOTED_SKEW_SECONDS:g} s"
    if abs(truth) > _MAX_SKEW_SECONDS:
        text = f"this machine's clock is {_ahead(-truth, 'the service')}"
        yield Level.NOTE, text, "The service does not depend on this machine's clock."


def _spread(instances: Sequence[ProbedInstance]) -> float:
    """Return the largest difference between two clocks, reduced by the measurement's uncertainty."""
    return max(
        abs(one.offset - other.offset) - one.uncertainty - other.uncertainty
        for one, other in combinations(instances, 2)
    )


def _ahead(offset: float, reference: str) -> str:
    return f"{_seconds(abs(offset))} {'ahead of' if offset > 0 else 'behind'} {reference}"


def _seconds(seconds: float) -> str:
    return f"{seconds / 60:.1f} min" if seconds >= 2 * _MAX_SKEW_SECONDS else f"{seconds:.0f} s"


def _builds(seen: Observed) -> Iterator[_Entry]:
    builds = _grouped(seen, lambda facts: facts.build)
    if len(builds) > 1:
        listed = "; ".join(f"{_labels(seen, members)}: {builds_text(members[0])}" for members in builds.values())
        tools = [facts.tools for facts in _facts(seen)]
        differing = sorted({name for each in tools for name in each if len({other.get(name) for other in tools}) > 1})
        which = f". Differing tools: {_some(differing)}" if differing else ""
        advice = "This is normal during a deploy: calls in flight continue if their plan still fits."
        yield Level.NOTE, f"the instances run different builds ({listed}){which}", advice
    elif len(seen.instances) > 1:
        yield Level.OK, "all instances serve the same tools"
    for package in ("roundtrip", "mcp"):
        groups = _grouped(seen, lambda facts, package=package: str(getattr(facts, package)))
        if len(groups) > 1:
            versions = "; ".join(f"{_labels(seen, members)}: {version}" for version, members in groups.items())
            yield Level.NOTE, f"the instances run different versions of {package} ({versions})"


def builds_text(facts: Facts) -> str:
    """Return the builds of an instance's tools, named as in traces."""
    builds = [build_text(build) for build in facts.builds or (facts.build,)]
    return f"build{'s' if len(builds) > 1 else ''} {_some(builds)}"


def _ledgers(seen: Observed) -> Iterator[_Entry]:
    users = [instance for instance in seen.instances.values() if instance.facts.needs_ledger]
    if not users:
        if seen.instances:
            yield Level.OK, "no tool runs exactly once or as a task, so no ledger is needed"
        return
    results = (LedgerCheck.DOWN, LedgerCheck.ABSENT, None)
    down, absent, unsure = ([one.facts for one in users if one.look is result] for result in results)
    if down:
        text = f"{_labels(seen, down)}: the ledger does not answer"
        advice = (
            "The log names the ledger and the error. Until the ledger answers, exactly-once tools and tasks do not run."
        )
        yield Level.PROBLEM, text, advice
    if len(users) == 1:
        return
    if absent:
        text = (
            f"{_labels(seen, absent)}: the ledger lacks the mark that {seen.label(seen.marker)} set, so exactly-once "
            "tools may run twice, and tasks are not found"
        )
        yield Level.PROBLEM, text, _ledger_advice(users)
    if unsure:
        text = f"{_labels(seen, unsure)}: the probe could not determine whether the ledger is shared"
        yield Level.NOTE, text, _LEDGER_RETRY
    if not (down or absent or unsure):
        kinds = ", ".join(sorted({one.facts.ledger for one in users}))
        labels = _labels(seen, [one.facts for one in users])
        yield Level.OK, f"{labels} share one ledger ({kinds})"


def _ledger_advice(users: Sequence[ProbedInstance]) -> str:
    kinds = {instance.facts.ledger for instance in users}
    reaches = {instance.facts.reach for instance in users}
    if "process" in reaches:
        return "A MemoryLedger serves one process. Give all instances one RedisLedger, PostgresLedger or SqliteLedger."
    if len(kinds) > 1:
        return f"The instances have different ledgers ({', '.join(sorted(kinds))}). Give all of them the same ledger."
    if "machine" in reaches:
        return "Give all instances the same file. Several machines need a RedisLedger or a PostgresLedger."
    return "Give all instances the same address, database and prefix. The address must not be a replica's."


def _tasks(seen: Observed) -> Iterator[_Entry]:
    all_reports = [(facts, tasks) for facts in _facts(seen) if (tasks := facts.tasks) is not None]
    if unreachable := [facts for facts, tasks in all_reports if tasks.down]:
        text = f"{_labels(seen, unreachable)}: the task store does not answer"
        yield Level.PROBLEM, text, "The log has the error. Until the store answers, tasks and waiting calls pause."
    reports = [(facts, tasks) for facts, tasks in all_reports if not tasks.down]
    if not reports:
        return
    problems = [*_unread(seen, reports, "tasks"), *_stuck_tasks(reports)]
    yield from problems
    # Instances that share a store count the same tasks, so do not add up their reports. Use the report with the most
    # tasks.
    tasks = max((tasks for _, tasks in reports), key=lambda tasks: sum(tasks.states.values()))
    states = ", ".join(f"{number} {state}" for state, number in sorted(tasks.states.items())) or "none"
    first = "" if tasks.is_whole else "only some tasks were counted: "
    keys = ", ".join(f"{number} with {key}" for key, number in sorted(tasks.keys.items()) if key)
    text = f"{first}{states}" + (f"; encrypted: {keys}" if keys else "")
    old = sorted({key for _, each in reports for key in each.former_keys})
    if old:
        yield Level.NOTE, f"{text}; old keys are in use: {', '.join(old)}", _REKEY
    elif not problems:
        yield Level.OK, text


def _intents(seen: Observed) -> Iterator[_Entry]:
    reports = [(facts, facts.intents) for facts in _facts(seen) if facts.intents is not None]
    yield from (problems := [*_unread(seen, reports, "results of intents")])
    # Instances that share a ledger count the same entries.
    counted = max((each for _, each in reports), key=lambda each: sum(each.keys.values()), default=None)
    if counted is None:
        return
    keys = ", ".join(f"{number} with {key}" for key, number in sorted(counted.keys.items()) if key) or "none"
    old = sorted({key for _, each in reports for key in each.former_keys})
    if old:
        yield Level.NOTE, f"encrypted: {keys}; old keys are in use: {', '.join(old)}", _REKEY
    elif not all(each.is_whole and not each.down for _, each in reports):
        yield Level.NOTE, f"encrypted: {keys}; not all entries were counted, so others may need an old key", _REKEY
    elif not problems:
        yield Level.OK, f"encrypted: {keys}"


def _unread(seen: Observed, reports: Sequence[tuple[Facts, KeyFacts]], what: str) -> Iterator[_Entry]:
    for facts, found in reports:
        unread = {key: number for key, number in found.keys.items() if key and key not in found.own_keys}
        if unread:
            text = (
                f"{seen.label(facts.instance)} cannot read {sum(unread.values())} {what}, which are encrypted with "
                f"{', '.join(sorted(unread))}"
            )
            advice = "Add the key to this instance's keys=, or run `roundtrip calls rekey` where the key is known."
            yield Level.PROBLEM, text, advice


def _stuck_tasks(reports: Sequence[tuple[Facts, TaskFacts]]) -> Iterator[_Entry]:
    overdue = max(tasks.overdue for _, tasks in reports)
    if overdue:
        who = "" if any(tasks.runs for _, tasks in reports) else ", and none of the instances runs tasks"
        text = f"{overdue} tasks are more than a minute overdue{who}"
        yield Level.PROBLEM, text, "Run `roundtrip worker MODULE:SERVER`, or leave run_tasks= on. The log has details."
    lost = max(tasks.states.get("lost", 0) for _, tasks in reports)
    if lost:
        command = "`roundtrip calls stored --server MODULE:SERVER --state lost`"
        advice = f"List them with {command}, and see `roundtrip calls retry`."
        yield Level.NOTE, f"{lost} tasks were lost because their workers died", advice


def _calls(seen: Observed) -> Iterator[_Entry]:
    done = [journey for journey in seen.journeys if journey.reached is ProbeOutcome.DONE]
    failed = [journey for journey in seen.journeys if journey.reached is ProbeOutcome.FAILED]
    rejected: dict[str, list[str]] = {}
    for journey in seen.journeys:
        if journey.reached is ProbeOutcome.REJECTED:
            behind = seen.behind(journey.end)
            end = seen.label(behind[0]) if len(behind) == 1 else "another instance"
            rejected.setdefault(_reason(seen, journey), []).append(f"from {seen.label(journey.began)} to {end}")
    for reason, ways in rejected.items():
        why = f" because {reason}" if reason else ""
        text = f"calls that moved between instances were rejected{why}: {', '.join(dict.fromkeys(ways))}"
        yield Level.PROBLEM, text, "" if reason else _UNEXPLAINED
    if failed:
        text = f"{len(failed)} of {len(seen.journeys)} calls failed, the first with: {failed[0].detail}"
        yield Level.PROBLEM, text
    across = sum(journey.began != journey.ended for journey in done)
    if across:
        count = "a call" if across == 1 else f"{across} calls"
        yield Level.OK, f"{count} started on one instance and ended on another"
    elif done and len(seen.instances) > 1:
        text = "every call ended on the instance that started it, so calls between instances were not tested"
        yield Level.NOTE, text, "Pass the instances' own addresses."
    elif done:
        yield Level.OK, "a call asked a question, received the answer and completed"


def _reason(seen: Observed, journey: ProbedCall) -> str:
    """Explain why a token was rejected, by comparing both instances' reports. Return "" if the reports do not explain
    it.
    """
    behind = seen.behind(journey.end)
    start = seen.instances.get(journey.began or "")
    if start is None or len(behind) != 1:
        return ""
    end = seen.instances[behind[0]]
    left, right = start.facts, end.facts
    reasons = {
        "the second instance does not know the key": bool(left.keys and right.keys and left.keys[0] not in right.keys),
        "the audiences differ": left.audience != right.audience,
        "the instances see different callers": left.caller != right.caller,
        "the clocks differ": _spread([start, end]) > _MAX_SKEW_SECONDS,
    }
    return " and ".join(reason for reason, holds in reasons.items() if holds)


def _older_clients(seen: Observed) -> Iterator[_Entry]:
    can = [endpoint.url for endpoint in seen.endpoints if endpoint.older_clients is LiveQuestion.YES]
    cannot = [endpoint for endpoint in seen.endpoints if endpoint.older_clients is LiveQuestion.NO]
    if can:
        where = f" at {', '.join(can)}" if cannot else ""
        yield Level.OK, f"clients on 2025-11-25 and earlier can be asked with forms{where}"
    if cannot:
        where = f" at {', '.join(endpoint.url for endpoint in cannot)}" if can else ""
        details = {each.older_clients_detail for each in cannot if _NO_WAY_BACK not in each.older_clients_detail}
        more = f" ({'; '.join(sorted(details))})" if details else ""
        advice = (
            "With Pages(authenticate=...), they get links to question pages; with the channel 'model', their model "
            "gets the questions. To ask them with forms, use roundtrip serve without --no-sessions (on other hosts, "
            "set stateless_http=False and json_response=False). The balancer must keep each client on its instance."
        )
        text = f"clients on 2025-11-25 and earlier cannot be asked with forms{where}{more}"
        yield Level.NOTE, text, advice


def _apps(seen: Observed) -> Iterator[_Entry]:
    """Report how clients that show apps, and no forms, can be asked on a service with question pages."""
    channels = {channel for facts in _facts(seen) for channel in facts.channels}
    if "app" in channels:
        yield Level.OK, "clients that show MCP Apps and no forms are asked in the conversation"
    elif "link" in channels:
        advice = "Remove app=False from Pages(...), and add 'app' to channels= if you set it."
        yield Level.NOTE, f"{_APP_HOSTS} get a link to a question page", advice
    elif "url" in channels:
        yield Level.NOTE, f"{_APP_HOSTS} get an error", "Add Pages(authenticate=...), or 'app' to channels=."


def _facts(seen: Observed) -> list[Facts]:
    return [instance.facts for instance in seen.instances.values()]


def _grouped(seen: Observed, read: Callable[[Facts], T]) -> dict[T, list[Facts]]:
    groups: dict[T, list[Facts]] = {}
    for facts in _facts(seen):
        groups.setdefault(read(facts), []).append(facts)
    return groups


def _group_text(seen: Observed, groups: dict[str, list[Facts]]) -> str:
    return "; ".join(f"{_labels(seen, members)}: {value!r}" for value, members in groups.items())


def _labels(seen: Observed, members: Sequence[Facts]) -> str:
    return seen.labels(facts.instance for facts in members)


def _some(names: Sequence[str]) -> str:
    """List the first names, and say how many more there are."""
    more = f" and {len(names) - _MAX_NAMED_TOOLS} more" if len(names) > _MAX_NAMED_TOOLS else ""
    return f"{', '.join(names[:_MAX_NAMED_TOOLS])}{more}"
