"""Node outcomes that do not come from running functions: answers, kept values, and values from other plans."""

from typing import Any, NamedTuple

from roundtrip.machine.journal import OUTCOMES
from roundtrip.questions.markers import Marker
from roundtrip.questions.outcomes import Outcome
from roundtrip.resolvers.plan import Node, Plan


class DeclinedParameter(NamedTuple):
    """A parameter that needs a bare value, but whose question the user declined."""

    parameter: str
    outcome: Outcome

    def __str__(self) -> str:
        return f"The user {OUTCOMES[self.outcome.action.word]} the question for parameter {self.parameter!r}"

    def as_on_sdk(self) -> str:
        """Return the text that the SDK uses. On SDK servers, only tools have resolvers."""
        return (
            f"Resolver for parameter {self.parameter!r} could not resolve: elicitation was {self.outcome.action.word}"
        )


class NodeOutcomes:
    """Source of the outcomes that do not come from a node's function. This base class has no outcomes."""

    __slots__ = ()

    def settle(self, node: Node, marker: Marker) -> Outcome | None:
        """Return the outcome of a node's question; None while the question has no answer."""
        return None

    def recall(self, node: Node) -> Outcome | None:
        """Return the outcome that a remembered node had on an earlier leg; None if it had none."""
        return None

    def can_recall(self, node: Node) -> bool:
        """Return True if `recall` would return a value for a remembered node."""
        return False

    def remember(self, node: Node, value: Any) -> None:
        """Keep the value that a remembered node has computed."""


class Reused(NamedTuple):
    """The outcomes that a leg knows before any node runs, and the nodes that the leg can therefore skip."""

    outcomes: dict[int, Outcome]
    skipped: set[int]


def reuse_kept(plan: Plan, source: NodeOutcomes) -> Reused | None:
    """Reuse the values that remembered nodes have kept, and skip nodes that only these nodes need.

    Return None if no node can be skipped.
    """
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
            # A remembered node without a kept value must run, and may need the nodes that would be skipped.
            return None
        outcomes[index] = outcome
    return Reused(outcomes, skipped)
