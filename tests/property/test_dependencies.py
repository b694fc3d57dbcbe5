"""Random graphs of `Resolve` and `Depends`, called by real clients, against a small interpreter that knows no tasks.

Both eras must give the same value or the same kind of end, run each function as often, and open and close the same
dependencies in the same order, each told the same about how its leg ended.
"""

import inspect
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any

import anyio
import anyio.lowlevel
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roundtrip import Context, Depends, Elicit, ElicitationResult, Resolve, Server, Transition
from roundtrip.client.legs import ERAS
from roundtrip.testing import Era
from tests.kit.hosts import WAIT
from tests.kit.players import Person, connect, text_of
from tests.kit.tiers import examples
from tests.property.graphs import Answer, shown


class Boom(Exception):
    """Error of failing functions."""


class Kind(Enum):
    """Kind of a function."""

    QUICK = "returns at once"
    WAITING = "waits first"
    THREADED = "runs in a thread"
    ASKING = "asks"
    FAILING = "raises"
    HELD = "is a generator"
    HELD_ASYNC = "is an async generator"
    HELD_BADLY = "is a generator that raises on its way out"
    SWALLOWING = "is an async generator that swallows what is thrown in"
    UNHELD = "is a generator that raises before it yields"

    @property
    def enters(self) -> bool:
        return self in (Kind.HELD, Kind.HELD_ASYNC, Kind.HELD_BADLY, Kind.SWALLOWING, Kind.UNHELD)


class Body(Enum):
    """End of the body."""

    RETURNS = "returns"
    RAISES = "raises"
    ASKS = "asks, then returns"


@dataclass(frozen=True)
class Need:
    """Parameter: its function, the spelling of the marker, and True if it takes the outcome."""

    function: int
    resolve: bool
    default: bool
    cached: bool
    outcome: bool


@dataclass(frozen=True)
class Function:
    """One function. Its first `subs` parameters are filled by position, by each consumer."""

    kind: Kind
    needs: tuple[Need, ...]
    subs: int


@dataclass(frozen=True)
class Case:
    """Functions, each of which needs earlier ones only; a tool; and a user's answer to each question."""

    functions: tuple[Function, ...]
    roots: tuple[Need, ...]
    body: Body
    answers: tuple[int | None, ...]
    """By function, and for the body at the end. None declines."""


# Most calls should get somewhere.
KINDS = st.sampled_from([*list(Kind) * 3, Kind.HELD, Kind.HELD_ASYNC, Kind.ASKING]).filter(
    lambda kind: kind not in (Kind.FAILING, Kind.UNHELD)
) | st.sampled_from(list(Kind))


def needs(before: int) -> st.SearchStrategy[tuple[Need, ...]]:
    if not before:
        return st.just(())
    cached = st.integers(0, 3).map(bool)
    outcome = st.integers(0, 2).map(lambda number: not number)
    need = st.builds(Need, st.integers(0, before - 1), st.booleans(), st.booleans(), cached, outcome)
    return st.lists(need, max_size=3).map(tuple)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    count = draw(st.integers(1, 6))
    functions: list[Function] = []
    for place in range(count):
        wanted = draw(needs(place))
        functions.append(Function(draw(KINDS), wanted, draw(st.integers(0, len(wanted)))))
    # The last function always counts, so that a graph is more than its first one.
    last = Need(count - 1, draw(st.booleans()), draw(st.booleans()), cached=True, outcome=draw(st.booleans()))
    answer = st.none() | st.integers(0, 99) | st.integers(0, 99) | st.integers(0, 99)
    answers = draw(st.lists(answer, min_size=count + 1, max_size=count + 1))
    return Case(tuple(functions), (last, *draw(needs(count))), draw(st.sampled_from(Body)), tuple(answers))


@dataclass
class Leg:
    """Events of one leg."""

    log: list[str] = field(default_factory=list[str])
    runs: Counter[int] = field(default_factory=Counter[int])


# The functions themselves.


class Built:
    """A case as a tool. `legs` keeps what happened."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self.legs: list[Leg] = []
        self._functions: list[Callable[..., Any]] = []
        for place in range(len(case.functions)):
            self._functions.append(self._function(place))

    def observe(self, step: Transition) -> None:
        while len(self.legs) < step.leg:
            self.legs.append(Leg())

    def tool(self) -> Callable[..., Any]:
        case = self._case

        async def body(*, ctx: Context, **filled: Any) -> str:
            self.legs[-1].runs[len(case.functions)] += 1
            if case.body is Body.RAISES:
                raise Boom("boom")
            text = " ".join(shown(filled[name]) for name in sorted(filled))
            if case.body is Body.ASKS:
                answer = await ctx.ask("body", f"{len(case.functions)}?", Answer)
                return f"{text} {answer.value}"
            return text

        self._sign(body, case.roots, 0)
        signature = inspect.signature(body)
        context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=Context)
        parameters = [*signature.parameters.values(), context]
        body.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        body.__annotations__ |= {"ctx": Context, "return": str}
        return body

    def _function(self, place: int) -> Callable[..., Any]:
        spec = self._case.functions[place]

        def compute(placed: tuple[Any, ...], filled: dict[str, Any]) -> str:
            self.legs[-1].runs[place] += 1
            values = [*placed, *(filled[name] for name in sorted(filled))]
            return f"{place}({','.join(shown(value) for value in values)})"

        @contextmanager
        def held() -> Generator[None]:
            log = self.legs[-1].log
            log.append(f"open {place}")
            try:
                yield
            except BaseException as error:
                log.append(f"{place}: {type(error).__name__}")
                raise
            else:
                log.append(f"{place}: done")

        async def quick(*placed: Any, **filled: Any) -> str:
            return compute(placed, filled)

        async def waiting(*placed: Any, **filled: Any) -> str:
            await anyio.lowlevel.checkpoint()
            return compute(placed, filled)

        def threaded(*placed: Any, **filled: Any) -> str:
            return compute(placed, filled)

        async def asking(*placed: Any, **filled: Any) -> Elicit[Answer]:
            compute(placed, filled)
            return Elicit(f"{place}?", Answer)

        async def failing(*placed: Any, **filled: Any) -> str:
            compute(placed, filled)
            raise Boom("boom")

        def generator(*placed: Any, **filled: Any) -> Generator[str]:
            value = compute(placed, filled)
            with held():
                yield value

        async def async_generator(*placed: Any, **filled: Any) -> AsyncGenerator[str]:
            value = compute(placed, filled)
            await anyio.lowlevel.checkpoint()
            with held():
                yield value
            await anyio.lowlevel.checkpoint()

        def badly(*placed: Any, **filled: Any) -> Generator[str]:
            try:
                yield from generator(*placed, **filled)
            finally:
                raise LookupError("on the way out")

        async def swallowing(*placed: Any, **filled: Any) -> AsyncGenerator[str]:
            value = compute(placed, filled)
            try:
                with held():
                    yield value
            except BaseException:  # noqa: BLE001
                pass

        def unheld(*placed: Any, **filled: Any) -> Generator[str]:
            compute(placed, filled)
            raise Boom("boom")
            yield

        function: Callable[..., Any] = {
            Kind.QUICK: quick,
            Kind.WAITING: waiting,
            Kind.THREADED: threaded,
            Kind.ASKING: asking,
            Kind.FAILING: failing,
            Kind.HELD: generator,
            Kind.HELD_ASYNC: async_generator,
            Kind.HELD_BADLY: badly,
            Kind.SWALLOWING: swallowing,
            Kind.UNHELD: unheld,
        }[spec.kind]
        self._sign(function, spec.needs, spec.subs)
        return function

    def _marker(self, need: Need) -> Any:
        spec = self._case.functions[need.function]
        fn = self._functions[need.function]
        if need.resolve and need.cached and not spec.subs:
            return Resolve(fn)
        return Depends(fn, *(self._marker(sub) for sub in spec.needs[: spec.subs]), use_cache=need.cached)

    def _sign(self, function: Callable[..., Any], wanted: tuple[Need, ...], subs: int) -> None:
        parameters: list[inspect.Parameter] = []
        for number, need in enumerate(wanted):
            annotation: Any = ElicitationResult[Any] if need.outcome else Any
            kind, default = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.empty
            if number >= subs:
                kind, marker = inspect.Parameter.KEYWORD_ONLY, self._marker(need)
                if need.default and not isinstance(marker, Resolve):
                    default = marker
                else:
                    annotation = Annotated[annotation, marker]
            parameters.append(inspect.Parameter(f"p{number}", kind, default=default, annotation=annotation))
        function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        function.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}


# The interpreter.

DONE, ASKED, FAILED, REFUSED, REFUSED_IN_BODY = "done", "Suspension", "Boom", "RoundtripError", "QuestionDeclined"


@dataclass(frozen=True)
class Instance:
    """Function run for all its consumers, or for one parameter of one other instance."""

    function: int
    needs: tuple[tuple[int, bool], ...]


@dataclass
class Expected:
    """Check the events of one leg. Where two events race, either may end it."""

    ends: set[str]
    opened: list[int]
    runs: Counter[int]
    text: str = ""

    def log(self, end: str) -> list[str]:
        return [*(f"open {place}" for place in self.opened), *(f"{place}: {end}" for place in reversed(self.opened))]


class Interpreter:
    """Interpreter of a case, leg by leg: runs all that can run, enters the first manager, and repeats."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._instances: list[Instance] = []
        self._shared: dict[int, int] = {}
        self._roots = [(self._visit(need), need.outcome) for need in case.roots]
        wanted = [*self._roots, *(need for instance in self._instances for need in instance.needs)]
        self._decisive = {place for place, outcome in wanted if not outcome}

    def _visit(self, need: Need) -> int:
        if need.cached and need.function in self._shared:
            return self._shared[need.function]
        spec = self._case.functions[need.function]
        needs = tuple((self._visit(below), below.outcome) for below in spec.needs)
        self._instances.append(Instance(need.function, needs))
        place = len(self._instances) - 1
        if need.cached:
            self._shared[need.function] = place
        return place

    def play(self, era: Era) -> list[Expected]:
        """Return the legs of a call."""
        legs: list[Expected] = []
        asked: set[int] = set()
        while not legs or legs[-1].ends == {ASKED}:
            legs.append(self._leg(asked, era))
        return legs

    def _leg(self, asked: set[int], era: Era) -> Expected:
        """Play one leg, and note in `asked` the questions with answers for the next one. The body asks number -1."""
        values: dict[int, int | str | None] = {}
        waiting: set[int] = set()
        begun: set[int] = set()
        leg = Expected(set(), [], Counter())

        def shown_as(place: int, outcome: bool) -> str:
            value = values[place]
            if value is None:
                return "<decline>"
            return f"<{value}>" if outcome else str(value)

        def answer(place: int) -> None:
            value = self._case.answers[self._instances[place].function]
            if value is None and place in self._decisive:
                leg.ends.add(REFUSED)
            else:
                values[place] = value

        def begin(place: int) -> Kind:
            begun.add(place)
            instance = self._instances[place]
            leg.runs[instance.function] += 1
            return self._case.functions[instance.function].kind

        def finish(place: int) -> None:
            instance = self._instances[place]
            values[place] = f"{instance.function}({','.join(shown_as(*need) for need in instance.needs)})"

        def ready(*, enters: bool) -> list[int]:
            return [
                place
                for place, instance in enumerate(self._instances)
                if place not in begun
                and self._case.functions[instance.function].kind.enters is enters
                and all(need in values for need, _ in instance.needs)
            ]

        def run(place: int) -> None:
            kind = begin(place)
            if kind is Kind.FAILING:
                leg.ends.add(FAILED)
            elif kind is not Kind.ASKING:
                finish(place)
            elif place in asked:
                answer(place)
            else:
                waiting.add(place)

        while True:
            while able := ready(enters=False):
                for place in able:
                    run(place)
            if leg.ends:
                return leg
            if able := ready(enters=True):
                place = able[0]
                if begin(place) is Kind.UNHELD:
                    leg.ends.add(FAILED)
                    return leg
                leg.opened.append(self._instances[place].function)
                finish(place)
            elif waiting:
                asked |= waiting
                if era is Era.RETRY:
                    leg.ends.add(ASKED)
                    return leg
                for place in sorted(waiting):
                    answer(place)
                waiting.clear()
                if leg.ends:
                    return leg
            else:
                break
        self._body(leg, asked, era, [shown_as(*root) for root in self._roots])
        return leg

    def _body(self, leg: Expected, asked: set[int], era: Era, values: list[str]) -> None:
        leg.runs[len(self._case.functions)] += 1
        if self._case.body is Body.ASKS:
            answer = self._case.answers[-1]
            if era is Era.RETRY and -1 not in asked:
                asked.add(-1)
                leg.ends.add(ASKED)
            elif answer is None:
                leg.ends.add(REFUSED_IN_BODY)
            else:
                leg.ends.add(DONE)
                leg.text = " ".join([*values, str(answer)])
        else:
            leg.ends.add(FAILED if self._case.body is Body.RAISES else DONE)
            leg.text = " ".join(values)


def end_of(text: str) -> str:
    if text == "Error executing tool tool: boom":
        return FAILED
    if "could not resolve" in text:
        return REFUSED
    return REFUSED_IN_BODY if text.startswith("Error executing tool tool") else DONE


@settings(
    max_examples=examples(100),
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(case=cases())
def test_a_call_does_what_the_interpreter_says(case: Case) -> None:
    async def play(era: Era) -> None:
        built = Built(case)
        server = Server("graphs", trace=built.observe)
        server.add_tool(built.tool(), name="tool")

        def reply(params: Any) -> Any:
            answer = case.answers[int(params.message.rstrip("?"))]
            return "decline" if answer is None else {"value": answer}

        with anyio.fail_after(WAIT):
            async with connect(server, era, Person(answer=reply)) as client:
                text = text_of(await client.call_tool("tool"))
        expected = Interpreter(case).play(era)
        end = end_of(text)
        assert end in expected[-1].ends
        if end is DONE:
            assert text == expected[-1].text
        assert len(built.legs) == len(expected)
        for leg, wanted in zip(built.legs, expected, strict=True):
            how = end if wanted is expected[-1] else ASKED
            assert leg.log == wanted.log(how)
            if how in (FAILED, REFUSED):
                # What was cancelled may have run or not, but none ran more often.
                assert leg.runs <= wanted.runs
            else:
                assert leg.runs == wanted.runs

    for era in ERAS:
        anyio.run(play, era)
