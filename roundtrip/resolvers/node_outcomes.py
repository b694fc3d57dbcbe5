"""Provide the outcomes of nodes that do not come from their functions: answers, kept values, those of other plans."""

from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

from roundtrip.machine.journal import OUTCOMES
from roundtrip.questions.markers import Marker
from roundtrip.questions.outcomes import Outcome
from roundtrip.resolvers.plan import Node, Plan, Source


class DeclinedParameter(NamedTuple):
    """Parameter whose question the user declined, and whose consumer needs the bare value."""

    parameter: str
    outcome: Outcome

    def __str__(self) -> str:
        return f"The user {OUTCOMES[self.outcome.action.word]} the question for parameter {self.parameter!r}"

    def as_on_sdk(self) -> str:
        """Return the text of the SDK, whose servers have resolvers for tools only."""
        return (
            f"Resolver for parameter {self.parameter!r} could not resolve: elicitation was {self.outcome.action.word}"
        )


class NodeOutcomes:
    """Source of outcomes besides the nodes' functions. This base class has none."""

    __slots__ = ()

    def settle(self, node: Node, marker: Marker) -> Outcome | None:
        """Return the outcome of a node's question, or None while it has no answer."""
        return None

    def recall(self, node: Node) -> Outcome | None:
        """Return the outcome of a remembered node on an earlier leg, if it has one."""
        return None

    def keeps(self, node: Node) -> bool:
        """Return True if `recall` would give the value of a remembered node."""
        return False

    def remember(self, node: Node, value: Any) -> None:
        """Keep the value that a remembered node has computed."""


class Reused(NamedTuple):
    """Outcomes that a leg has before any node runs, by the nodes, and the nodes that then need not run."""

    outcomes: dict[int, Outcome]
    skipped: set[int]


def reuse_known(plan: Plan, known: Mapping[Hashable, Outcome]) -> Reused:
    """Reuse the outcomes of another plan, and skip the nodes that only those would need."""
    nodes = plan.nodes
    # A node that takes the call's arguments, or is kept for the call, has another value in the call than before it.
    of_call: set[int] = set()
    for node in nodes:
        takes = node.remember or any(entry.source is Source.ARGUMENT for entry in node.inputs)
        if takes or not of_call.isdisjoint(node.needs):
            of_call.add(node.index)
    outcomes: dict[int, Outcome] = {}
    needed: set[int] = set()
    open_ = [root.node for root in plan.roots]
    while open_:
        index = open_.pop()
        if index in needed:
            continue
        needed.add(index)
        outcome = known.get(nodes[index].shared_as) if index not in of_call else None
        if outcome is None:
            open_.extend(nodes[index].needs)
        else:
            outcomes[index] = outcome
    return Reused(outcomes, {node.index for node in nodes if node.index not in needed})


def reuse_kept(plan: Plan, source: NodeOutcomes) -> Reused | None:
    """Reuse kept remembered nodes, and skip those which only kept nodes need. Return None if none can be skipped."""
    nodes = plan.nodes
    kept = {node.index for node in nodes if node.remember and source.keeps(node)}
    roots = {root.node for root in plan.roots}
    skipped = {index for index in kept - roots if kept.issuperset(nodes[index].dependents)}
    if not skipped:
        return None
    outcomes: dict[int, Outcome] = {}
    for index in sorted(kept - skipped):
        outcome = source.recall(nodes[index])
        if outcome is None:
            # A node without a value must run, and may need the skipped nodes.
            return None
        outcomes[index] = outcome
    return Reused(outcomes, skipped)
