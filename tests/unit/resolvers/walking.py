"""Plans of functions, and whole walks over them with answers known beforehand."""

import inspect
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import anyio

from roundtrip import Resolve
from roundtrip.questions.markers import Marker
from roundtrip.questions.outcomes import Outcome
from roundtrip.resolvers.annotations import Reject, accept, find_resolved
from roundtrip.resolvers.node_outcomes import NodeOutcomes
from roundtrip.resolvers.plan import Node, Plan
from roundtrip.resolvers.planner import make_plan
from roundtrip.resolvers.scheduler import Scheduler
from roundtrip.threads.any_threads import AnyThreads
from roundtrip.visibility.gates import reuse_known
from tests.kit.waiting import WAIT


class Request:
    """Class of contexts in these plans."""


def plan_of(
    fn: Callable[..., Any], *arguments: str, aliases: Mapping[str, str] | None = None, reject: Reject = accept
) -> Plan:
    """Return the plan of a tool with these arguments."""
    names = {name: name for name in arguments} | dict(aliases or {})
    resolved = find_resolved(fn, owner="tool 'order'", reject=reject)
    return make_plan(
        fn, owner="tool 'order'", arguments=names, context_types=(Request,), resolved=resolved, reject=reject
    )


def keys(plan: Plan) -> list[str]:
    return [node.key for node in plan.nodes]


def tool_of(*resolvers: Callable[..., Any]) -> Callable[..., Any]:
    """Return a tool with a parameter for each resolver: `p0`, `p1`, ..."""

    def tool(**filled: Any) -> None: ...

    parameters = [inspect.Parameter(f"p{n}", inspect.Parameter.KEYWORD_ONLY) for n in range(len(resolvers))]
    tool.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    tool.__annotations__ = {f"p{n}": Annotated[Any, Resolve(fn, name=f"n{n}")] for n, fn in enumerate(resolvers)}
    return tool


@dataclass
class Memory(NodeOutcomes):
    """Answers and kept values that a scheduler finds, with a record of its questions."""

    answers: dict[str, Any] = field(default_factory=dict[str, Any])
    kept: dict[str, Any] = field(default_factory=dict[str, Any])
    asked: list[str] = field(default_factory=list[str])

    def settle(self, node: Node, marker: Marker) -> Outcome | None:
        del marker
        self.asked.append(node.key)
        if node.key not in self.answers:
            return None
        answer = self.answers[node.key]
        return answer if isinstance(answer, Outcome) else Outcome(answer)

    def recall(self, node: Node) -> Outcome | None:
        return Outcome(self.kept[node.key]) if node.key in self.kept else None

    def remember(self, node: Node, value: Any) -> None:
        self.kept[node.key] = value


def start(
    plan: Plan,
    memory: Memory | None = None,
    *,
    context: Any = None,
    arguments: Mapping[str, Any] | None = None,
    is_isolated: Callable[[BaseException], bool] | None = None,
    known: Mapping[Hashable, Outcome] | None = None,
    **options: Any,
) -> Scheduler:
    """Return a walk that has not begun."""
    return Scheduler(
        plan,
        arguments=arguments or {},
        context=lambda: context,
        outcomes=memory or Memory(),
        is_isolated=is_isolated,
        reused=reuse_known(plan, known) if known is not None else None,
        threads=AnyThreads(),
        **options,
    )


async def walk(
    plan: Plan, memory: Memory | None = None, *, context: Any = None, arguments: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the values of a walk that needs no further answers. A timeout makes a deadlock a failure."""
    one = start(plan, memory, context=context, arguments=arguments)
    with anyio.fail_after(WAIT):
        await one.advance()
    values: dict[str, Any] = {}
    one.fill(values)
    assert one.declined is None, str(one.declined)
    assert one.waiting == {}
    return values
