"""Random graphs of resolvers: as data, as functions for a tool, and as a small interpreter to compare with."""

import inspect
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any

import anyio.lowlevel
from hypothesis import strategies as st
from mcp_types import ElicitResult
from pydantic import BaseModel, Field

from roundtrip import AcceptedElicitation, Elicit, ElicitationResult, Resolve


class Answer(BaseModel):
    """The form of every question."""

    value: int = Field(ge=0, le=99)


class Kind(Enum):
    """The kind of a node's function."""

    QUICK = "returns at once"
    WAITING = "waits first"
    THREADED = "runs in a thread"
    ASKING = "asks"
    HELD = "is a generator"
    HELD_ASYNC = "is an async generator"


@dataclass(frozen=True)
class Need:
    """An edge: which earlier node, and whether as its outcome."""

    node: int
    outcome: bool


@dataclass(frozen=True)
class Spec:
    """One node."""

    kind: Kind
    needs: tuple[Need, ...]
    once: bool


@dataclass(frozen=True)
class Graph:
    """Nodes, each of which needs only earlier ones, and the tool's own parameters."""

    nodes: tuple[Spec, ...]
    roots: tuple[Need, ...]

    @property
    def reached(self) -> set[int]:
        """Return the nodes that the tool needs, directly or not."""
        reached: set[int] = set()
        open_ = [root.node for root in self.roots]
        while open_:
            node = open_.pop()
            if node not in reached:
                reached.add(node)
                open_ += [need.node for need in self.nodes[node].needs]
        return reached

    @property
    def decisive(self) -> set[int]:
        """Return the nodes whose bare value a consumer takes: declined, they end the call."""
        reached = self.reached
        needs = [*self.roots, *(need for node in reached for need in self.nodes[node].needs)]
        return {need.node for need in needs if not need.outcome}


def needs(before: int) -> st.SearchStrategy[tuple[Need, ...]]:
    if not before:
        return st.just(())
    need = st.builds(Need, st.integers(0, before - 1), st.booleans())
    return st.lists(need, max_size=3, unique_by=lambda need: need.node).map(tuple)


@st.composite
def graphs(draw: st.DrawFn, *, most: int) -> Graph:
    count = draw(st.integers(1, most))
    nodes = tuple(_spec(draw(st.sampled_from(Kind)), draw(needs(place)), draw(st.booleans())) for place in range(count))
    # The last node always counts, so that a graph is more than its first one.
    roots = (Need(count - 1, draw(st.booleans())), *draw(needs(count - 1)))
    return Graph(nodes, roots)


def _spec(kind: Kind, wanted: tuple[Need, ...], once: bool) -> Spec:
    # What is open only until the end of a leg cannot be kept.
    return Spec(kind, wanted, once and kind not in (Kind.HELD, Kind.HELD_ASYNC))


def shown(value: Any) -> str:
    """Return a value or an outcome as text, so that it can be part of another value."""
    if isinstance(value, AcceptedElicitation):
        return f"<{shown(value.data)}>"  # type: ignore[reportUnknownMemberType]
    if isinstance(value, Answer):
        return str(value.value)
    return value if isinstance(value, str) else f"<{value.action}>"


def _need(marker: Resolve, *, outcome: bool) -> Any:
    return Annotated[ElicitationResult[Any], marker] if outcome else Annotated[Any, marker]


@dataclass
class Built:
    """The functions of a graph. `runs` counts how often each ran, and `log` tells which generators began and ended."""

    graph: Graph
    runs: Counter[str] = field(default_factory=Counter[str])
    log: list[str] = field(default_factory=list[str])

    def tool(self) -> Callable[..., Any]:
        """Return its values as text."""
        functions: list[Callable[..., Any]] = []
        for place, spec in enumerate(self.graph.nodes):
            functions.append(self._node(place, spec, functions))

        async def tool(**filled: Any) -> str:
            self.runs["body"] += 1
            return " ".join(shown(filled[name]) for name in sorted(filled))

        self._sign(tool, self.graph.roots, functions, returns=str)
        return tool

    def _node(self, place: int, spec: Spec, before: list[Callable[..., Any]]) -> Callable[..., Any]:
        def compute(filled: Mapping[str, Any]) -> str:
            self.runs[f"n{place}"] += 1
            return f"{place}({','.join(shown(filled[name]) for name in sorted(filled))})"

        async def quick(**filled: Any) -> str:
            return compute(filled)

        async def waiting(**filled: Any) -> str:
            await anyio.lowlevel.checkpoint()
            return compute(filled)

        def threaded(**filled: Any) -> str:
            return compute(filled)

        @contextmanager
        def held() -> Generator[None]:
            self.log.append(f"open {place}")
            try:
                yield
            except BaseException as error:
                self.log.append(f"close {place}: {type(error).__name__}")
                raise
            else:
                self.log.append(f"close {place}: done")

        def generator(**filled: Any) -> Generator[str]:
            value = compute(filled)
            with held():
                yield value

        async def async_generator(**filled: Any) -> AsyncGenerator[str]:
            value = compute(filled)
            await anyio.lowlevel.checkpoint()
            with held():
                yield value
            await anyio.lowlevel.checkpoint()

        async def asking(**filled: Any) -> Elicit[Answer]:
            return Elicit(f"{compute(filled)}?", Answer)

        kinds: dict[Kind, tuple[Callable[..., Any], Any]] = {
            Kind.QUICK: (quick, str),
            Kind.WAITING: (waiting, str),
            Kind.THREADED: (threaded, str),
            Kind.ASKING: (asking, Elicit[Answer]),
            Kind.HELD: (generator, Generator[str]),
            Kind.HELD_ASYNC: (async_generator, AsyncGenerator[str]),
        }
        function, returns = kinds[spec.kind]
        self._sign(function, spec.needs, before, returns=returns)
        return function

    def _sign(
        self, function: Callable[..., Any], wanted: tuple[Need, ...], before: list[Callable[..., Any]], *, returns: Any
    ) -> None:
        names = [f"p{need.node}" for need in wanted]
        annotations: dict[str, Any] = {
            name: _need(
                Resolve(before[need.node], name=f"n{need.node}", remember=self.graph.nodes[need.node].once),
                outcome=need.outcome,
            )
            for name, need in zip(names, wanted, strict=True)
        }
        function.__annotations__ = {**annotations, "return": returns}
        parameters = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotations[name]) for name in names
        ]
        function.__signature__ = inspect.Signature(parameters, return_annotation=returns)  # type: ignore[attr-defined]


class Expected(Enum):
    """The expected end of a leg."""

    ASKED = "asked"
    REFUSED = "refused"
    DONE = "done"


@dataclass(frozen=True)
class Interpreted:
    """The interpreter's prediction for one leg."""

    end: Expected
    questions: frozenset[str] = frozenset()
    text: str = ""


def interpret(graph: Graph, answers: Mapping[str, int | str]) -> Interpreted:
    """Walk a graph in the plainest way. An answer is a number, or the word of a refusal."""
    known: dict[int, int | str] = {}
    refused: dict[int, str] = {}
    waiting: set[str] = set()

    def value(need: Need) -> str:
        if need.node in refused:
            return f"<{refused[need.node]}>"
        return f"<{known[need.node]}>" if need.outcome else str(known[need.node])

    for place in sorted(graph.reached):
        spec = graph.nodes[place]
        if any(need.node not in known and need.node not in refused for need in spec.needs):
            continue
        if any(need.node in refused and not need.outcome for need in spec.needs):
            continue
        key = f"n{place}"
        if spec.kind is not Kind.ASKING:
            inner = ",".join(value(need) for need in sorted(spec.needs, key=lambda need: f"p{need.node}"))
            known[place] = f"{place}({inner})"
        elif key not in answers:
            waiting.add(key)
        elif isinstance(answer := answers[key], str):
            refused[place] = answer
        else:
            known[place] = answer
    if refused.keys() & graph.decisive:
        return Interpreted(Expected.REFUSED)
    if waiting:
        return Interpreted(Expected.ASKED, questions=frozenset(waiting))
    roots = sorted(graph.roots, key=lambda need: f"p{need.node}")
    return Interpreted(Expected.DONE, text=" ".join(value(root) for root in roots))


def accepted(value: int) -> ElicitResult:
    return ElicitResult(action="accept", content={"value": value})
