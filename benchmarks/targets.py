"""Compare roundtrip's costs with their targets: `python -m benchmarks --targets`."""

import random
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.everything import scenarios
from benchmarks.intervals import Interval, interval_of, ratio_interval
from benchmarks.measure import Effort, interleaved
from benchmarks.report import shown
from benchmarks.requests import REQUESTS
from benchmarks.scenarios import Unit
from benchmarks.variants import Variant

__all__ = ["HEAD", "TARGETS", "Target", "Verdict", "line_of", "measure_targets"]

_OWN: Final = "roundtrip"


@dataclass(frozen=True, slots=True)
class Target:
    """Limit for one of roundtrip's rows, or for its ratio to another row or a peer."""

    work: str
    row: str
    most: float
    """A ratio; without a peer, a value in the row's unit."""
    peer: str | None = None
    """The variant to compare with."""
    peer_row: str | None = None
    """The peer's row, if it differs."""
    times: float = 1
    """The row's work divided by the peer row's work."""
    faster: bool = False
    """True if the target is a speed: how many times as fast as the peer roundtrip is. More is better."""
    own: str = _OWN
    """The variant that is measured."""
    included: bool = False
    """True if the target is met when the interval reaches it: a busy machine cannot measure a ratio so close to 1."""

    @property
    def against(self) -> str:
        """Return the name of the other side of the comparison."""
        if self.peer is None:
            return ""
        names = {"lowlevel": "by hand", "sdk": "SDK", "fastmcp": "FastMCP", _OWN: "itself"}
        if self.own != _OWN:
            return "not recording"
        return names[self.peer] if self.peer_row is None else f"{names[self.peer]}, {self.peer_row}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A target's measurement, or None if the peer or a measuring program is not installed."""

    target: Target
    measured: Interval | None
    unit: Unit

    @property
    def result(self) -> str:
        """Return the result: pass, miss or -."""
        if self.measured is None:
            return "-"
        if self.target.faster:
            return "pass" if self.measured.figure >= self.target.most else "miss"
        least = self.measured.low if self.target.included else self.measured.figure
        return "pass" if least <= self.target.most else "miss"


TARGETS: Final[tuple[Target, ...]] = (
    Target("plain call", "plain", 0.35, "sdk"),
    Target("two-round elicitation, both legs", "elicit", 0.35, "sdk"),
    Target("two-round elicitation, plain `def`", "elicit-def", 0.45, "sdk"),
    Target("two-round elicitation, both legs", "elicit", 0.80, "lowlevel"),
    Target("two-round elicitation, both legs", "elicit", 3.3, "fastmcp", faster=True),
    Target("16 independent questions, ask leg", "ask-16", 0.12, "sdk"),
    Target("16 independent questions, ask leg, plain `def`", "ask-16-def", 0.15, "sdk"),
    Target("chain of 64 questions", "chain-64", 0.12, "sdk"),
    Target("chain of 64 questions, plain `def`", "chain-64-def", 0.2, "sdk"),
    Target("requests per second over uvicorn, plain call", "requests", 1.8, "sdk", faster=True),
    Target("requests per second over uvicorn, ask leg", "requests-ask", 2.2, "sdk", faster=True),
    Target("two-round elicitation, recording on", "elicit", 1.08, "roundtrip", own="recording"),
    Target(
        "two-round elicitation, recording on, until all is written",
        "elicit-settled",
        1.08,
        "roundtrip",
        own="recording",
    ),
    Target("import, processor time", "import", 1.05, "sdk"),
    Target("chain of 64 questions, remember=True", "once-64", 0.08, "sdk", "chain-64"),
    Target("one round of 64 by one of 16, remember=True", "once-64", 1.25, _OWN, "once-16", times=4),
    Target("10 resolvers of 50 ms", "slow-10", 60e6),
    Target("10 resolvers of 50 ms, plain `def`", "slow-10-def", 60e6),
    Target("10 trivial resolvers, whole call", "trivial-10", 1.1, "sdk"),
    Target("plain call, 100 tools by 1 tool", "plain-100", 1.02, _OWN, "plain", included=True),
    Target("token, 1 answer", "token-1", 0.45, "sdk"),
    Target("token, 4 answers", "token-4", 0.4, "sdk"),
    Target("token, 16 answers", "token-16", 0.35, "sdk"),
    Target("leg with 20 kB of sampled text, bytes", "sampled", 0.5, "sdk"),
    Target("import beyond mcp.server", "import-beyond", 40e6),
    Target("import beyond mcp.server", "import-beyond", 0.09, "sdk", "import"),
    Target("import beyond mcp.server, memory", "import-memory", 8 * 2**20),
    Target("--help of the command line", "help", 250e6),
    Target("`roundtrip serve` by `uvicorn`, until the first response", "start", 1.2, "sdk"),
    Target("p99 by median, 16 connections", "tail", 4),
)


async def measure_targets(
    targets: Sequence[Target], variants: Sequence[Variant], *, effort: Effort, quick: bool, seed: int
) -> AsyncGenerator[Verdict]:
    """Measure both sides of each target, alternating."""
    rng = random.Random(seed)
    every = (*scenarios(quick=quick), *REQUESTS)
    rows = {row.name: (one, index) for one in every for index, row in enumerate(one.rows)}
    by_name = {variant.name: variant for variant in variants}
    for target in targets:
        scenario, place = rows[target.row]
        subjects = {"own": (scenario, by_name[target.own])}
        other_place = place
        if target.peer is not None:
            other, other_place = rows[target.peer_row or target.row]
            if target.peer in by_name:
                subjects["other"] = (other, by_name[target.peer])
        samples = await interleaved(subjects, effort=effort, rng=rng)
        own = [values[place] / target.times for values in samples.get("own", [])]
        others = [values[other_place] for values in samples.get("other", [])]
        unit = scenario.rows[place].unit
        if target.peer is None:
            yield Verdict(target, interval_of(own), unit)
        elif not own or not others:
            yield Verdict(target, None, Unit.RATIO)
        else:
            # Less time is better, so a speed is the inverse ratio.
            is_inverse = target.faster and unit is not Unit.PER_SECOND
            yield Verdict(target, ratio_interval(*((others, own) if is_inverse else (own, others))), Unit.RATIO)


HEAD: Final = "| work | compared with | must be | measured | 95 % | |\n|---|---|---|---|---|---|"
"""The header of a Markdown table, as in docs/comparison.md."""


def line_of(verdict: Verdict) -> str:
    """Return a row for that table."""
    target, measured = verdict.target, verdict.measured
    most = f"{'≥' if target.faster else '≤'} {shown(target.most, verdict.unit)}"
    if measured is None:
        return f"| {target.work} | {target.against} | {most} | not installed | | - |"
    interval = f"{shown(measured.low, verdict.unit)} to {shown(measured.high, verdict.unit)}"
    figure = shown(measured.figure, verdict.unit)
    return f"| {target.work} | {target.against} | {most} | {figure} | {interval} | {verdict.result} |"
