"""Node outcomes that do not come from functions: answers, kept values, and values from other plans."""

from typing import Any, NamedTuple

from roundtrip.machine.journal import OUTCOMES
from roundtrip.questions.markers import Marker
from roundtrip.questions.outcomes import Outcome
from roundtrip.resolvers.plan import Node, Plan


class DeclinedParameter(NamedTuple):
    """Parameter whose question the user declined, and whose consumer needs the bare value."""

    parameter: str
    outcome: Outcome

    def __str__(self) -> str:
        return f"The user {OUTCOMES[self.outcome.action.word]} the question for parameter {self.parameter!r}"

    def as_on_sdk(self) -> str:
        """Return the SDK's text. SDK servers have resolvers only for tools."""
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
        """Return a remembered node's outcome on an earlier leg; None without one."""
        return None

    def can_recall(self, node: Node) -> bool:
        """Return True if `recall` would return a remembered node's value."""
        return False

    def remember(self, node: Node, value: Any) -> None:
        """Keep the value that a remembered node has computed."""


class Reused(NamedTuple):
    """Outcomes that a leg has before any node runs, by node, and the nodes that it therefore skips."""

    outcomes: dict[int, Outcome]
    skipped: set[int]


def reuse_kept(plan: Plan, source: NodeOutcomes) -> Reused | None:
    """Reuse kept remembered nodes, and skip nodes that only kept nodes need. Return None if none can be skipped."""
    nodes = plan.nodes
    kept = {node.index for node in nodes if node.remember and source.can_recall(node)}
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
