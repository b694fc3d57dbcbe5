"""What is right and wrong with a service, worked out from what was seen of it. Nothing here asks anybody anything."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from statistics import median
from typing import Final, TypeVar

from roundtrip.doctor.facts import Facts, Live, Look, Observed, Place, ProbedCall, ProbedInstance, Reached, Trouble
from roundtrip.revisions import LAST_OF_LIVE_ERA
from roundtrip.safe_text import build_text
from roundtrip.server.requests import SKEW

__all__ = ["Finding", "Level", "builds_text", "findings_of"]

T = TypeVar("T")

TOLERATED: Final = SKEW
"""How far, in seconds, the clocks of two instances may differ."""
_NOTICED: Final = 5.0
_SAME_KEYS: Final = "Give all instances the same ROUNDTRIP_KEY_FILE or ROUNDTRIP_KEYS, or the same keys=."
_NO_WAY_BACK: Final = "no way back"
"""What a server says that keeps no connection to ask an older client over."""
_NAMED: Final = 5
"""How many tools are named one by one."""


class Level(StrEnum):
    """How grave a finding is."""

    OK = "ok"
    NOTE = "note"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is right or wrong, and what to do."""

    level: Level
    topic: str
    text: str
    advice: str = ""


def findings_of(seen: Observed) -> list[Finding]:
    """All findings, those of places first."""
    checks: Sequence[Callable[[Observed], Iterator[Finding]]] = (
        _places,
        _number,
        _keys,
        _audiences,
        _callers,
        _clocks,
        _builds,
        _versions,
        _ledgers,
        _journeys,
        _older_clients,
    )
    return [finding for check in checks for finding in check(seen)]


def _places(seen: Observed) -> Iterator[Finding]:
    for place in seen.places:
        if place.trouble is not None:
            text, advice = _trouble(place, place.trouble)
            yield Finding(Level.PROBLEM, "reach", f"{place.url}: {text}", advice)
        elif place.failures:
            text = f"{place.url}: {len(place.failures)} of {place.probes} probes failed, the first with: "
            advice = "Behind it is an instance that is down, or does not answer the probe. Try its own address."
            yield Finding(Level.PROBLEM, "reach", text + place.failures[0], advice)
        if place.ready == 503:
            advice = "It answers all the same; see its log for what it waits for."
            yield Finding(Level.PROBLEM, "reach", f"{place.url}: /health/ready says that it is not ready", advice)


def _trouble(place: Place, trouble: Trouble) -> tuple[str, str]:
    said = f" ({place.detail})" if place.detail else ""
    match trouble:
        case Trouble.UNREACHABLE:
            return f"nobody answers there{said}", "Is the instance running, and is the address right?"
        case Trouble.TLS:
            return f"TLS fails{said}", "Is its certificate valid for this name, and its authority known here?"
        case Trouble.TIMEOUT:
            return f"{place.detail}", "Is it overloaded, or does a firewall swallow packets? See --timeout."
        case Trouble.FORBIDDEN:
            return (
                f"it wants to know who asks{said}",
                "Give credentials: --header 'Authorization: Bearer ${TOKEN}'.",
            )
        case Trouble.NOT_FOUND:
            return f"there is no MCP server at this path{said}", "The path is /mcp unless the server says otherwise."
        case Trouble.NOT_MCP:
            return f"what answers there does not speak MCP{said}", "Is it another service's address, or a proxy's page?"
        case Trouble.OLD:
            return (
                f"it speaks no revision of the protocol on which questions are returned{said}",
                "It is no server of this library, or something in front of it strips what it does not know.",
            )
        case Trouble.NO_PROBE:
            return (
                "an MCP server without the probe",
                "If it is a server of this library: start it with ROUNDTRIP_PROBE=1, or Server(..., probe=True).",
            )
        case Trouble.STRANGE:
            return f"its probe answers strangely{said}", "Is there a tool of its own by the name of roundtrip_probe?"


def _number(seen: Observed) -> Iterator[Finding]:
    met = len(seen.instances)
    if seen.expected is not None and met < seen.expected:
        text = f"{met} of {seen.expected} instances were met"
        yield Finding(Level.PROBLEM, "instances", text, "Are the others running, and does the balancer know of them?")
    elif met < seen.announced:
        text = f"{met} of {seen.announced} workers were met, and the others were not compared with them"
        advice = "Run this again: one socket may give all requests to a few workers, as long as those are not busy."
        yield Finding(Level.NOTE, "instances", text, advice)
    elif met > 1:
        quiet = min((place.quiet for place in seen.places if place.trouble is None), default=0)
        how = (
            "as many as the servers say there are"
            if any(facts.workers is not None for facts in _facts(seen))
            else f"and the last {quiet} requests met no other"
            if len(seen.places) == 1
            else f"and at each address the last {quiet} requests met no other"
        )
        yield Finding(Level.OK, "instances", f"{met} were met, {how}")
    if met != 1 or seen.expected == 1:
        return
    advice = "To compare instances, give the address of each, or of a balancer that spreads requests over them."
    yield Finding(Level.NOTE, "instances", "only one instance was met, so there is nothing to compare it with", advice)


def _keys(seen: Observed) -> Iterator[Finding]:
    everyone = _facts(seen)
    own = [facts for facts in everyone if facts.own_key]
    if own and len(everyone) > 1:
        text = f"{_who(seen, own)}: the key was made by the process itself, and no other instance can know it"
        yield Finding(Level.PROBLEM, "keys", text, _SAME_KEYS)
    elif own:
        text = f"{_who(seen, own)} has made its key itself: a second instance, or a restart, could not resume its calls"
        yield Finding(Level.NOTE, "keys", text, "Give it keys=, or ROUNDTRIP_KEYS, before there is a second one.")
    unknown = [facts for facts in everyone if not facts.keys]
    if unknown and len(everyone) > 1:
        text = f"{_who(seen, unknown)}: the codec is one of the application's own, whose keys cannot be compared"
        yield Finding(Level.NOTE, "keys", text, "The calls that were sent across the instances tell.")
    rings = [(keys, who) for keys, who in _grouped(seen, lambda facts: facts.keys).items() if keys]
    if not own:
        problems = [
            problem
            for (one, ones), (other, others) in combinations(rings, 2)
            if (problem := _between_rings(seen, one, ones, other, others)) is not None
        ]
        yield from problems or _readable_rings(seen, rings)


def _readable_rings(seen: Observed, rings: Sequence[tuple[tuple[str, ...], list[Facts]]]) -> Iterator[Finding]:
    told = [
        f"{_who(seen, who)} sign{'s' if len(who) == 1 else ''} with {keys[0]}"
        + (f" and read{'s' if len(who) == 1 else ''} {_listed(keys[1:])} too" if keys[1:] else "")
        for keys, who in rings
    ]
    if len(told) == 1 and len(rings[0][1]) > 1:
        yield Finding(Level.OK, "keys", told[0])
    elif len(told) > 1:
        advice = "Each reads what the others sign, so no call is lost: a rotation is under way. Finish it."
        yield Finding(Level.NOTE, "keys", "; ".join(told), advice)


def _between_rings(
    seen: Observed, one: tuple[str, ...], ones: list[Facts], other: tuple[str, ...], others: list[Facts]
) -> Finding | None:
    forth, back = one[0] in other, other[0] in one
    if forth and back:
        return None
    left, right = _who(seen, ones), _who(seen, others)
    if not set(one) & set(other):
        have = "has" if len(ones) == 1 else "have"
        text = f"{left} {have} no key in common with {right} ({_listed(one)}; {_listed(other)})"
        return Finding(Level.PROBLEM, "keys", text, _SAME_KEYS)
    lost: list[str] = []
    if not forth:
        lost.append(f"{right} cannot read what {left} signs with {one[0]}")
    if not back:
        lost.append(f"{left} cannot read what {right} signs with {other[0]}")
    advice = (
        "A new key must be known to all before any signs with it: first [old, new] on every instance, then [new, old] "
        "on every instance, then [new]."
    )
    return Finding(Level.PROBLEM, "keys", "; ".join(lost), advice)


def _audiences(seen: Observed) -> Iterator[Finding]:
    yield from _agreement(
        seen,
        "audience",
        lambda facts: facts.audience,
        level=Level.PROBLEM,
        same="tokens are for {!r} everywhere",
        differs="the instances say differently which service a token is for",
        advice="Give all instances of one service the same audience=, or the same name if they have none.",
    )


def _callers(seen: Observed) -> Iterator[Finding]:
    if len(_grouped(seen, lambda facts: facts.caller)) < 2:
        return
    yield from _agreement(
        seen,
        "caller",
        lambda facts: facts.caller or "nobody",
        level=Level.PROBLEM,
        same="",
        differs="the instances do not take this same caller for the same, so that none resumes another's calls",
        advice="Give all instances the same principal= and auth; behind a proxy, let it pass on who calls.",
    )


def _agreement(
    seen: Observed,
    topic: str,
    read: Callable[[Facts], str],
    *,
    level: Level,
    same: str,
    differs: str,
    advice: str,
) -> Iterator[Finding]:
    groups = _grouped(seen, read)
    if len(groups) > 1:
        told = "; ".join(f"{_who(seen, members)}: {value!r}" for value, members in groups.items())
        yield Finding(level, topic, f"{differs}: {told}", advice)
    elif len(_facts(seen)) > 1:
        yield Finding(Level.OK, topic, same.format(next(iter(groups))))


def _clocks(seen: Observed) -> Iterator[Finding]:
    instances = list(seen.instances.values())
    if not instances:
        return
    if len(instances) == 1:
        (only,) = instances
        if abs(only.offset) - only.uncertainty > TOLERATED:
            text = f"the clock of {_label(seen, only)} is {_ahead(only.offset)} of this machine's; one of them is wrong"
            yield Finding(Level.NOTE, "clock", text, "Let both be set by NTP (`timedatectl`, `chronyc tracking`).")
        return
    # This machine's clock has one vote among the others: two instances alone could not tell which of them is wrong.
    truth = median([0.0, *(instance.offset for instance in instances)])
    spread = _spread(instances)
    if spread > TOLERATED:
        wrong = [instance for instance in instances if abs(instance.offset - truth) > TOLERATED / 2]
        told = "; ".join(f"the clock of {_label(seen, one)} is {_ahead(one.offset - truth)}" for one in wrong)
        text = f"{told}: instances may differ by {TOLERATED:g} s, and refuse each other's calls beyond that"
        advice = "Let all machines be set by NTP (`timedatectl`, `chronyc tracking`)."
        yield Finding(Level.PROBLEM, "clock", text, advice)
    elif spread > _NOTICED:
        text = f"the clocks differ by {_seconds(spread)}; up to {TOLERATED:g} s are tolerated"
        advice = "Calls expire that much sooner or later than they should. Let all machines be set by NTP."
        yield Finding(Level.NOTE, "clock", text, advice)
    else:
        yield Finding(Level.OK, "clock", f"the clocks agree, to {_NOTICED:g} s")
    if abs(truth) > TOLERATED:
        text = f"this machine's clock is {_ahead(-truth)} of the service's"
        yield Finding(Level.NOTE, "clock", text, "Nothing of the service's depends on it.")


def _spread(instances: Sequence[ProbedInstance]) -> float:
    """By how much two clocks differ for sure."""
    return max(
        abs(one.offset - other.offset) - one.uncertainty - other.uncertainty
        for one, other in combinations(instances, 2)
    )


def _ahead(offset: float) -> str:
    return f"{_seconds(abs(offset))} {'ahead' if offset > 0 else 'behind'}"


def _seconds(seconds: float) -> str:
    return f"{seconds / 60:.1f} min" if seconds >= 2 * TOLERATED else f"{seconds:.0f} s"


def _builds(seen: Observed) -> Iterator[Finding]:
    groups = _grouped(seen, lambda facts: facts.build)
    if len(groups) < 2:
        if len(_facts(seen)) > 1:
            yield Finding(Level.OK, "build", "all instances serve the same tools")
        return
    told = "; ".join(f"{_who(seen, members)}: {builds_text(members[0])}" for members in groups.values())
    tools = [facts.tools for facts in _facts(seen)]
    differing = sorted({name for each in tools for name in each if len({other.get(name) for other in tools}) > 1})
    which = ""
    if differing:
        more = f" and {len(differing) - _NAMED} more" if len(differing) > _NAMED else ""
        which = f". What differs: {', '.join(differing[:_NAMED])}{more}"
    advice = "Right while a deploy is rolling out; calls that are under way go on where their plan still fits."
    yield Finding(Level.NOTE, "build", f"the instances are different builds ({told}){which}", advice)


def builds_text(facts: Facts) -> str:
    """The builds of an instance's tools, spelled as traces spell them."""
    builds = [build_text(build) for build in facts.builds or (facts.build,)]
    more = f" and {len(builds) - _NAMED} more" if len(builds) > _NAMED else ""
    return f"build{'s' if len(builds) > 1 else ''} {', '.join(builds[:_NAMED])}{more}"


def _versions(seen: Observed) -> Iterator[Finding]:
    for what, read in _VERSIONS.items():
        groups = _grouped(seen, read)
        if len(groups) > 1:
            told = "; ".join(f"{_who(seen, members)}: {version}" for version, members in groups.items())
            yield Finding(Level.NOTE, "build", f"the instances run different versions of {what} ({told})")


_VERSIONS: Final[dict[str, Callable[[Facts], str]]] = {
    "roundtrip": lambda facts: facts.roundtrip,
    "mcp": lambda facts: facts.mcp,
}


def _ledgers(seen: Observed) -> Iterator[Finding]:
    demanding = [instance for instance in seen.instances.values() if instance.facts.exactly_once]
    if not demanding:
        if seen.instances:
            yield Finding(Level.OK, "ledger", "no tool runs exactly once, so no ledger is needed")
        return
    down = [instance for instance in demanding if instance.look is Look.DOWN]
    if down:
        text = f"{_labels(seen, down)}: the ledger does not answer"
        advice = "Its log says which ledger, and why. Until then, tools that run exactly once refuse to run."
        yield Finding(Level.PROBLEM, "ledger", text, advice)
    if len(demanding) == 1:
        return
    absent = [instance for instance in demanding if instance.look is Look.ABSENT]
    if absent:
        text = (
            f"{_labels(seen, absent)}: what {seen.label(seen.marker)} puts down in its ledger is not there, so a tool "
            "that must run exactly once may run twice"
        )
        yield Finding(Level.PROBLEM, "ledger", text, _ledger_advice(demanding))
    unsure = [instance for instance in demanding if instance.look is None]
    if unsure:
        text = f"{_labels(seen, unsure)}: whether the ledger is shared could not be seen"
        yield Finding(Level.NOTE, "ledger", text, "Run this again; it looks a limited number of times in a minute.")
    if not (down or absent or unsure):
        kinds = _listed(sorted({instance.facts.ledger for instance in demanding}))
        yield Finding(Level.OK, "ledger", f"{_labels(seen, demanding)} share one ledger ({kinds})")


def _ledger_advice(demanding: Sequence[ProbedInstance]) -> str:
    kinds = {instance.facts.ledger for instance in demanding}
    if any(instance.facts.reach == "process" for instance in demanding):
        return "A MemoryLedger holds for one process: give all instances the same RedisLedger, or SqliteLedger."
    if len(kinds) > 1:
        return f"They have ledgers of different kinds ({_listed(sorted(kinds))}): give all the same."
    if any(instance.facts.reach == "machine" for instance in demanding):
        return "Give all the same file; between several machines that cannot be, there it takes a RedisLedger."
    return "Give all the same address, database and prefix; and not a replica that lags behind."


def _journeys(seen: Observed) -> Iterator[Finding]:
    done = [journey for journey in seen.journeys if journey.reached is Reached.DONE]
    failed = [journey for journey in seen.journeys if journey.reached is Reached.FAILED]
    refused: dict[str, list[str]] = {}
    for journey in seen.journeys:
        if journey.reached is Reached.REFUSED:
            ways = refused.setdefault(_reason(seen, journey), [])
            way = f"from {seen.label(journey.began)} to {_destination(seen, journey)}"
            if way not in ways:
                ways.append(way)
    for reason, ways in refused.items():
        why = f", as {reason}" if reason else ""
        text = f"calls that went from one instance to another were refused{why}: {_listed(ways)}"
        yield Finding(Level.PROBLEM, "calls", text, "" if reason else _UNEXPLAINED)
    if failed:
        text = f"{len(failed)} of {len(seen.journeys)} calls could not be finished, the first with: {failed[0].detail}"
        yield Finding(Level.PROBLEM, "calls", text)
    across = sum(journey.began != journey.ended for journey in done)
    if across:
        count = "a call" if across == 1 else f"{across} calls"
        yield Finding(Level.OK, "calls", f"{count} begun on one instance went on and ended on another")
    elif done and len(seen.instances) > 1:
        text = "every call that was finished had begun on the same instance, so whether another could is not shown"
        yield Finding(Level.NOTE, "calls", text, "Give the instances' own addresses.")
    elif done:
        yield Finding(Level.OK, "calls", "a call was asked a question, answered and finished")


_UNEXPLAINED: Final = (
    "Nothing that they say of themselves explains it: compare principal= and request_state_security=, look at what a "
    "proxy in between changes, and see the log of the one that refused: it names the reason."
)


def _destination(seen: Observed, journey: ProbedCall) -> str:
    behind = seen.behind(journey.end)
    return seen.label(behind[0]) if len(behind) == 1 else "another instance"


def _reason(seen: Observed, journey: ProbedCall) -> str:
    """Why a token was refused, as far as what the two say of themselves tells."""
    behind = seen.behind(journey.end)
    start = seen.instances.get(journey.began or "")
    if start is None or len(behind) != 1:
        return ""
    end = seen.instances[behind[0]]
    reasons: list[str] = []
    if start.facts.keys and end.facts.keys and start.facts.keys[0] not in end.facts.keys:
        reasons.append("the key is not known there")
    if start.facts.audience != end.facts.audience:
        reasons.append("the audience is another")
    if start.facts.caller != end.facts.caller:
        reasons.append("the caller counts as somebody else there")
    if _spread([start, end]) > TOLERATED:
        reasons.append("the clocks differ")
    return " and ".join(reasons)


def _older_clients(seen: Observed) -> Iterator[Finding]:
    can = [place.url for place in seen.places if place.live is Live.YES]
    cannot = [place for place in seen.places if place.live is Live.NO]
    if can:
        where = f" at {_listed(can)}" if cannot else ""
        yield Finding(Level.OK, "older clients", f"clients of {LAST_OF_LIVE_ERA} and before can be asked{where}")
    if cannot:
        where = f" at {_listed([place.url for place in cannot])}" if can else ""
        told = {place.live_detail for place in cannot if _NO_WAY_BACK not in place.live_detail}
        text = f"clients of {LAST_OF_LIVE_ERA} and before cannot be asked{where}"
        advice = (
            "If there are such clients: serve with stateless_http=False and json_response=False (roundtrip serve with "
            "one worker), and let the balancer keep each client on its instance."
        )
        yield Finding(Level.NOTE, "older clients", f"{text} ({'; '.join(sorted(told))})" if told else text, advice)


def _facts(seen: Observed) -> list[Facts]:
    return [instance.facts for instance in seen.instances.values()]


def _grouped(seen: Observed, read: Callable[[Facts], T]) -> dict[T, list[Facts]]:
    groups: dict[T, list[Facts]] = {}
    for facts in _facts(seen):
        groups.setdefault(read(facts), []).append(facts)
    return groups


def _who(seen: Observed, members: Sequence[Facts]) -> str:
    return seen.labels(facts.instance for facts in members)


def _label(seen: Observed, instance: ProbedInstance) -> str:
    return seen.label(instance.facts.instance)


def _labels(seen: Observed, instances: Sequence[ProbedInstance]) -> str:
    return seen.labels(instance.facts.instance for instance in instances)


def _listed(words: Sequence[str]) -> str:
    return ", ".join(words)
