"""Questions, reviews and steps while a body runs: ask by name, and keep each step's result for the whole call.

The body runs again from the top on each leg. A question or step returns at once if the journal already has its name, so
each name must be used only once in a call.
"""

import functools
import inspect
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Never

import anyio
import anyio.lowlevel
from pydantic import TypeAdapter, ValidationError

from roundtrip.engine.claim import Claim
from roundtrip.engine.computed import NotedValue, storable
from roundtrip.engine.interruptions import Revision, Suspension
from roundtrip.engine.ports import Wait, Waits
from roundtrip.engine.rounds import Rounds
from roundtrip.errors import (
    AskedTooLate,
    AskNotAwaited,
    BodyMistake,
    KeyUsedTwice,
    QuestionsUnkeyed,
    RoundtripError,
    SuspensionSwallowed,
)
from roundtrip.machine.facts import StepBegan, StepEnded
from roundtrip.machine.journal import UNNAMED, Action, Computed
from roundtrip.machine.pins import label_of
from roundtrip.questions.forms import Form, adapter_for
from roundtrip.questions.markers import Marker
from roundtrip.questions.outcomes import Outcome
from roundtrip.questions.reviews import Review
from roundtrip.questions.wire import question_of
from roundtrip.resolvers.signatures import hints_of, is_async


class Body:
    """One run of a body that may ask questions."""

    def __init__(self, rounds: Rounds) -> None:
        self.rounds = rounds
        self.is_running = False
        """True while the body itself is running. False while its resolvers are running."""
        self.is_over = False
        """True once the body has ended."""
        self.begun: dict[str, BegunStep] = {}
        """Steps whose functions are running now, by name."""
        self._leg, self._answers = rounds.leg, rounds.answers
        self._names: dict[str, int] = {}
        """The names used so far, numbered in order of use. A name that was used after a changed answer may depend on
        that answer.
        """
        self._former: dict[str, str] = {}
        """Maps former question names to current names."""
        self._made: list[str] = []
        """Names of questions that the body has created but not awaited."""
        self._unkeyed = False
        self._waits: Waits | None = None
        self._ended_by: tuple[str, ...] = ()
        self._lock: anyio.Lock | None = None

    @property
    def is_live(self) -> bool:
        """Return True if the client is asked over its open connection."""
        return not self.rounds.answers_come_later

    @contextmanager
    def running(self) -> Generator[None]:
        """Manage one run of the body.

        Raises:
            SuspensionSwallowed: The body returned although its leg had ended with questions.
            AskNotAwaited: The body created a question but did not await it.
        """
        self.is_running = True
        try:
            yield
        finally:
            self.is_running = False
            self.is_over = True
            for step in [*self.begun.values()]:
                # The leg ended while the step's function was still running in a thread.
                step.fail()
        if self._ended_by:
            swallowed = SuspensionSwallowed(self._ended_by)
            swallowed.words = self._answers.words
            raise swallowed
        if self._made:
            raise AskNotAwaited(self._made[0])

    def make(self, key: str) -> None:
        """Note that the body has created a question and must await it."""
        self._made.append(key)

    def put(self, key: str) -> None:
        """Record that the body now awaits a question that it has created."""
        if key in self._made:
            self._made.remove(key)

    def name(self, marker: Marker) -> str:
        """Return a name for an unnamed question: a digest of its wording, followed by a number."""
        question = question_of(marker)
        stem = f"{UNNAMED}{label_of(question.message)}{label_of(question.schema)}"
        number = 1
        while f"{stem}-{number}" in self._names:
            number += 1
        name = f"{stem}-{number}"
        self._answers.words[name] = question.text
        return name

    async def ask(self, key: str | None, marker: Marker, former_names: Sequence[str] = ()) -> Outcome:
        """Return one question's outcome.

        Raises:
            Suspension: The outcome will be known on a later leg.
            BodyMistake: The question cannot be asked this way.
        """
        name = self.name(marker) if key is None else key
        self._enter(name)
        for old in former_names:
            if old != name:
                self._leave_name(old, of=name)
        if key is not None:
            return (await self._settle({name: marker}, former_names))[name]
        if self._unkeyed:
            raise QuestionsUnkeyed
        self._unkeyed = True
        try:
            outcomes = await self._settle({name: marker}, former_names)
        except Suspension:
            raise
        except BaseException as error:
            # The body no longer waits for the question, for example because of a timeout, so the question is no longer
            # pending.
            self._unkeyed = False
            if isinstance(error, RoundtripError):
                error.words = self._answers.words
            raise
        self._unkeyed = False
        return outcomes[name]

    async def ask_all(self, questions: Mapping[str, Marker]) -> dict[str, Outcome]:
        """Ask several questions in one round, and return their outcomes. See `ask`."""
        turn = len(self._names)
        for key in questions:
            self._enter(key, turn)
        return await self._settle(questions, ())

    async def review(self, key: str, message: str, of: Sequence[str]) -> Outcome:
        """Ask the user to change or confirm earlier answers.

        Raises:
            Suspension: The answer will be known on a later leg.
            Revision: The user changed an answer, so the body must run again.
            BodyMistake: One of the names does not belong to an answered form.
        """
        self._enter(key)
        if isinstance(of, str):
            raise BodyMistake(f"ctx.review({key!r}, of=...) must be given a list of names, got text; write of=[{of!r}]")
        parts: dict[str, tuple[Form, Mapping[str, Any]]] = {}
        for name in of:
            if name in self._answers.guarded:
                raise BodyMistake(
                    f"ctx.review({key!r}) cannot show {name!r}: it has guesses=, and a review does not count guesses"
                )
            form, entry = self._answers.form_of(name), self._answers.entries.get(name)
            if form is None or entry is None or entry.action is not Action.ACCEPT:
                raise BodyMistake(
                    f"ctx.review({key!r}) cannot show {name!r}: the user has not answered a form with this name"
                )
            parts[name] = (form, entry.data or {})
        # A model must not see or change a human's answers, even if a model was allowed to answer those questions.
        is_for_anyone = (self._answers.for_anyone & self._answers.by_model).issuperset(parts)
        review = Review(message, parts, "anyone" if is_for_anyone else "human")
        outcome = (await self._settle({key: review}, ()))[key]
        if key not in self._answers.by_model:
            self._answers.by_model.difference_update(parts)
        if outcome.action is Action.ACCEPT and self._answers.entries[key].data is not None:
            changed = {
                name: content
                for name, content in outcome.value.items()
                if parts[name][0].parse(content) != parts[name][0].parse(parts[name][1])
            }
            # Drop the changes from the review's entry. They are applied now, and later legs must not apply them again.
            self._answers.entries[key] = self._answers.entries[key]._replace(data=None)
            if changed:
                # Approvers may have relied on the answer as it was before the change, even if the plan does not connect
                # it with the approval.
                opened = [settler.opened_after(changed.keys()) for settler in self._leg.ports.settlers.values()]
                voided = [name for names in opened for name in names if name not in changed]
                stale = [after for name in (*changed, *voided) for after in self._after(name, but=(key, *changed))]
                stale += voided
                self._answers.revise(changed, stale=stale)
                self._ended_by = (key,)
                raise Revision
        values = {name: form.parse(self._answers.entries[name].data) for name, (form, _) in parts.items()}
        return Outcome(values, outcome.action) if outcome.action is Action.ACCEPT else outcome

    async def sleep(self, seconds: float, name: str | None) -> None:
        """Wait for the given number of seconds. No worker holds the call during the wait.

        A sleep without a name is identified by its position among the body's sleeps.

        Raises:
            Suspension: The time has not passed yet.
            BodyMistake: The call cannot wait.
        """
        waits = self._begin_waits("ctx.sleep")
        if name is not None:
            self._enter(name)
        wait = waits.sleep(seconds, name)
        if wait is not None:
            self._wait(wait)

    async def wait_for(self, name: str, seconds: float | None) -> Any:
        """Return the value that was sent with a signal.

        Raises:
            Suspension: The signal has not arrived yet.
            TimeoutError: The signal did not arrive in time.
            BodyMistake: The call cannot wait.
        """
        waits = self._begin_waits("ctx.wait_for")
        self._enter(name)
        received = waits.receive(name, seconds)
        if isinstance(received, Wait):
            self._wait(received)
        return received[0]

    def _begin_waits(self, caller: str) -> Waits:
        if not self.is_running:
            raise AskedTooLate(caller)
        begin = self._leg.ports.begin_waits
        if begin is None:
            raise BodyMistake(
                f"{caller} needs a roundtrip Server, because only a roundtrip Server can store a waiting call"
            )
        self._waits = self._waits or begin(caller, self._answers.computed)
        return self._waits

    def _wait(self, wait: Wait) -> Never:
        """End the leg. The call continues once the time has passed or the signal has arrived."""
        self.rounds.waits.append(wait)
        self._ended_by = (wait.signal or "ctx.sleep",)
        raise Suspension

    def _after(self, name: str, *, but: tuple[str, ...]) -> list[str]:
        """Return the names that may depend on an answer: the nodes that need it, and the names that the body used
        later.
        """
        turns, plan = self._names, self._leg.plan
        if name in plan.names:
            stale = [plan.nodes[index].key for index in plan.downstream(plan.names[name])]
            return [key for key in [*stale, *turns] if key not in but]
        # Perhaps the body has not yet reached an external question from an earlier leg. Then no later name depends on
        # the question.
        turn = turns.get(name, len(turns))
        return [key for key, asked in turns.items() if asked > turn and key not in but]

    async def step(self, key: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run a function once per call, and return its result on every leg.

        Raises:
            ValueNotStorable: The result cannot be converted to JSON.
        """
        begun = await self.begin_step(key, fn)
        if not isinstance(begun, BegunStep):
            return begun
        try:
            call = functools.partial(fn, *args, **kwargs)
            value = await call() if is_async(fn) else await self._leg.threads.run(call)
        except BaseException:
            begun.fail()
            raise
        return await begun.end(value)

    async def begin_step(self, key: str, fn: Callable[..., Any]) -> "Any | BegunStep":
        """Return a step's stored result. Without one, return the step itself, so that the caller runs its function."""
        self._enter(key)
        if not callable(fn):
            raise BodyMistake(
                f"ctx.step({key!r}, ...) must be given a function, got {type(fn).__name__}; write "
                f"ctx.step({key!r}, fn, *arguments), without calling fn"
            )
        adapter = adapter_for(hints_of(fn).get("return", Any))
        computed = self._answers.computed
        kept = computed.values.get(key)
        if kept is not None:
            try:
                restored = adapter.validate_python(kept.value)
            except ValidationError:
                # The result was kept by another build and does not fit this build's type, so run the function again.
                del computed.values[key]
            else:
                self.tell(StepEnded(key, "recalled", kept.value))
                return restored
        # A plain body runs in a thread, and this is the only place where it notices that the call was cancelled.
        await anyio.lowlevel.checkpoint_if_cancelled()
        claim = self._leg.ports.claim
        if claim is not None:
            await claim.require_held()
        self.tell(StepBegan(key))
        begun = self.begun[key] = BegunStep(self, key, adapter, claim)
        return begun

    def tell(self, fact: StepBegan | StepEnded) -> None:
        """Report a fact to the call's watcher."""
        if self._leg.call.watch is not None:
            self._leg.call.watch(fact)

    def _enter(self, key: str, turn: int | None = None) -> None:
        if not self.is_running:
            raise AskedTooLate(key)
        if not isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise BodyMistake(f"the name of a question or step must be text, got {type(key).__name__}")
        if not key:
            raise BodyMistake("the name of a question or step must not be empty")
        if key.startswith("~"):
            raise BodyMistake(f"{key!r} cannot name a question or step; use a name that does not begin with '~'")
        if self._is_taken(key):
            raise KeyUsedTwice(key, formerly_of=self._former.get(key))
        self._names[key] = len(self._names) if turn is None else turn

    def _leave_name(self, old: str, *, of: str) -> None:
        """Record a question's former name. No other question in the call may have the same current or former name."""
        if self._is_taken(old):
            # An answer under the former name may belong to another question, even one with the same wording.
            raise KeyUsedTwice(old, formerly_of=of)
        self._former[old] = of

    def _is_taken(self, name: str) -> bool:
        return name in self._names or name in self._former or name in self._leg.plan.names

    async def _settle(self, questions: Mapping[str, Marker | Review], former: Sequence[str]) -> dict[str, Outcome]:
        if self.is_live:
            # Rounds happen one at a time: if asyncio tasks in the body ask concurrently, they take turns.
            if self._lock is None:
                self._lock = anyio.Lock()
            async with self._lock:
                return await self._settle_now(questions, former)
        return await self._settle_now(questions, former)

    async def _settle_now(self, questions: Mapping[str, Marker | Review], former: Sequence[str]) -> dict[str, Outcome]:
        outcomes: dict[str, Outcome] = {}
        while True:
            for key, marker in questions.items():
                if key not in outcomes:
                    outcome = self._answers.settle_question((key, *former), marker)
                    if outcome is not None:
                        outcomes[key] = outcome
            waiting = [self._answers.open[key] for key in questions if key not in outcomes]
            if not waiting:
                # Return the outcomes in the order of the questions; `outcomes` has them in the order in which they were
                # settled.
                return {key: outcomes[key] for key in questions}
            try:
                await self.rounds.ask(waiting)
            except Suspension:
                self._ended_by = tuple(self.rounds.batch)
                raise


@dataclass(frozen=True, slots=True)
class BegunStep:
    """A step in the body whose function must run now."""

    body: Body
    key: str
    adapter: TypeAdapter[Any]
    claim: Claim | None

    def fail(self) -> None:
        """Note that the step's function has failed, unless the step has already ended."""
        if self.body.begun.pop(self.key, None) is not None:
            self.body.tell(StepEnded(self.key, "failed"))

    async def end(self, value: Any) -> Any:
        """Keep the function's result, and return it as later legs will read it.

        Raises:
            ValueNotStorable: The result cannot be converted to JSON.
        """
        key, computed = self.key, self.body.rounds.answers.computed
        try:
            if inspect.isawaitable(value):
                value = await value
            with storable(key):
                plain = self.adapter.dump_python(value, mode="json", by_alias=True, warnings="error")
                # Convert the JSON back, so that the first leg gets the same value as later legs, which read it from the
                # token.
                restored = self.adapter.validate_python(plain)
        except BaseException:
            self.fail()
            raise
        self.body.begun.pop(key, None)
        self.body.tell(StepEnded(key, "ran", plain))
        computed.values[key] = Computed(plain)
        if self.claim is not None:
            # Save the result in the ledger before the leg ends: the step may have an effect that must not happen twice.
            await self.claim.note(NotedValue(computed.revision, key, plain))
            computed.kept.add(key)
        return restored
