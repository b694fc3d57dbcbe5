"""What a running body can do besides computing: ask by name, and keep a result for the whole call.

On each leg the body runs again from the top, and what it asks or computes under a name returns at once if the journal
knows it. A name therefore stands for one thing in a call.
"""

import functools
import inspect
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import anyio
from pydantic import PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from roundtrip.engine.answers import UNNAMED, Answers, Noted, without_value
from roundtrip.engine.rounds import Rounds
from roundtrip.engine.unwinding import Revision, Suspension
from roundtrip.errors import (
    AskedTooLate,
    AskNotAwaited,
    BodyMistake,
    KeyUsedTwice,
    QuestionsUnkeyed,
    RoundtripError,
    SuspensionSwallowed,
    ValueNotStorable,
)
from roundtrip.machine.facts import StepBegan, StepEnded, Watch
from roundtrip.machine.journal import Action, Computed
from roundtrip.machine.pins import label_of
from roundtrip.questions.forms import Form
from roundtrip.questions.markers import Marker
from roundtrip.questions.outcomes import Outcome
from roundtrip.questions.reviews import Review
from roundtrip.questions.wire import ModelQuestion, question_of
from roundtrip.resolvers.plan import Plan
from roundtrip.resolvers.scheduler import RunInThread
from roundtrip.resolvers.signatures import hints_of, is_async

__all__ = ["Body"]


Note = Callable[[Noted], Awaitable[None]]
"""Keeps what was computed, for the case that this leg is served again."""


class Body:
    """The asking side of one run of a body."""

    __slots__ = (
        "_answers",
        "_ended_by",
        "_former",
        "_lock",
        "_made",
        "_note",
        "_open",
        "_over",
        "_plan",
        "_require_held",
        "_rounds",
        "_run_in_thread",
        "_unkeyed",
        "_used",
        "_watch",
        "is_live",
    )

    def __init__(
        self,
        plan: Plan,
        answers: Answers,
        rounds: Rounds,
        run_in_thread: RunInThread,
        *,
        watch: Watch | None = None,
        note: Note | None = None,
        require_held: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._watch = watch
        self._note = note
        self._require_held = require_held
        self._plan = plan
        self._answers = answers
        self._rounds = rounds
        self._run_in_thread = run_in_thread
        # In order: what came after a changed answer may depend on it.
        self._used: dict[str, None] = {}
        self._former: dict[str, str] = {}
        """Names that questions had before, with the names that those have now."""
        self._made: dict[str, int] = {}
        self._unkeyed = False
        self._open = self._over = False
        self._ended_by: tuple[str, ...] = ()
        self._lock: anyio.Lock | None = None
        self.is_live = not rounds.retry

    @property
    def is_running(self) -> bool:
        """Whether the body itself runs, rather than its resolvers, or nothing any more."""
        return self._open

    @property
    def is_over(self) -> bool:
        """Whether the body has run and ended."""
        return self._over

    @contextmanager
    def running(self) -> Generator[None]:
        """Surround one run of the body.

        Raises:
            SuspensionSwallowed: The body returned although its leg had ended with questions.
            AskNotAwaited: It made a question and never put it.
        """
        self._open = True
        try:
            yield
        finally:
            self._open = False
            self._over = True
        if self._ended_by:
            swallowed = SuspensionSwallowed(self._ended_by)
            swallowed.words = self._answers.words
            raise swallowed
        if self._made:
            raise AskNotAwaited(next(iter(self._made)))

    def make(self, key: str) -> None:
        """Note that a question was made, which is not yet to put it."""
        self._made[key] = self._made.get(key, 0) + 1

    def put(self, key: str) -> None:
        """Note that a question that was made is being put."""
        if key in self._made:
            self._made[key] -= 1
            if not self._made[key]:
                del self._made[key]

    def name(self, marker: Marker) -> str:
        """The name of a question whose author gave none: what it says, and how often that was said before."""
        question = question_of(marker)
        stem = f"{UNNAMED}{label_of(question.message)}{label_of(question.schema)}"
        number = 1
        while f"{stem}-{number}" in self._used:
            number += 1
        name = f"{stem}-{number}"
        self._answers.words[name] = question.wire.method if isinstance(question, ModelQuestion) else question.text
        return name

    async def ask(self, key: str | None, marker: Marker, *, was: tuple[str, ...] = ()) -> Outcome:
        """The outcome of one question.

        Raises:
            Suspension: It will be known on the next leg.
            BodyMistake: The question cannot be put this way.
        """
        unkeyed = key is None
        name = self.name(marker) if key is None else key
        self._enter(name)
        for old in was:
            if old != name:
                self._leave_name(old, of=name)
        if not unkeyed:
            return (await self._settle({name: marker}, was))[name]
        if self._unkeyed:
            raise QuestionsUnkeyed
        self._unkeyed = True
        try:
            outcomes = await self._settle({name: marker}, was)
        except Suspension:
            raise
        except BaseException as error:
            # Given up, as by a timeout around the question, it is not out any more.
            self._unkeyed = False
            if isinstance(error, RoundtripError):
                error.words = self._answers.words
            raise
        self._unkeyed = False
        return outcomes[name]

    async def ask_all(self, questions: Mapping[str, Marker]) -> dict[str, Outcome]:
        """The outcomes of several questions, put in one round.

        Raises:
            Suspension: They will be known on the next leg.
        """
        for key in questions:
            self._enter(key)
        return await self._settle(questions, ())

    async def review(self, key: str, message: str, of: Sequence[str]) -> Outcome:
        """Show earlier answers and have them changed or confirmed.

        Raises:
            Suspension: The answer will be known on the next leg.
            Revision: The user changed something; the body has to run again.
            BodyMistake: What is to be reviewed is not an answer to a form.
        """
        self._enter(key)
        parts: dict[str, tuple[Form, Mapping[str, Any]]] = {}
        for name in of:
            if name in self._answers.guarded:
                raise BodyMistake(
                    f"ctx.review({key!r}) cannot show {name!r}: it has guesses=, and a change there is not counted"
                )
            form, entry = self._answers.form_of(name), self._answers.entries.get(name)
            if form is None or entry is None or entry.action is not Action.ACCEPT:
                raise BodyMistake(
                    f"ctx.review({key!r}) cannot show {name!r}: it is not a form that was answered in this call before"
                )
            parts[name] = (form, entry.data or {})
        outcome = (await self._settle({key: Review(message, parts)}, ()))[key]
        if outcome.action is Action.ACCEPT and self._answers.is_fresh(key):
            changed = {
                name: content
                for name, content in outcome.value.items()
                if parts[name][0].parse(content) != parts[name][0].parse(parts[name][1])
            }
            # Restored on later legs, the review is only a review: its changes have been made.
            self._answers.entries[key] = self._answers.entries[key]._replace(data=None)
            if changed:
                stale = [after for name in changed for after in self._after(name, but=(key, *changed))]
                self._answers.revise(changed, stale=stale)
                self._ended_by = (key,)
                raise Revision
        values = {name: form.parse(self._answers.entries[name].data) for name, (form, _) in parts.items()}
        return Outcome(values, outcome.action) if outcome.action is Action.ACCEPT else outcome

    def _after(self, name: str, *, but: tuple[str, ...]) -> list[str]:
        """What may depend on an answer: the nodes downstream of it, and what came after it in the body."""
        order = list(self._used)
        if name in self._plan.names:
            stale = [self._plan.nodes[index].key for index in self._plan.downstream(self._plan.names[name])]
            return [key for key in [*stale, *order] if key not in but]
        return [key for key in order[order.index(name) + 1 :] if key not in but]

    async def step(self, key: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """The result of a function, which runs once for the call.

        Raises:
            ValueNotStorable: The result has no JSON form.
        """
        self._enter(key)
        adapter = _adapter(hints_of(fn).get("return", Any))
        kept = self._answers.computed.get(key)
        if kept is not None:
            try:
                restored = adapter.validate_python(kept.value)
            except ValidationError:
                # Another build's result does not fit this one's type: compute it anew.
                del self._answers.computed[key]
            else:
                self._tell(StepEnded(key, "recalled", kept.value))
                return restored
        if self._require_held is not None:
            await self._require_held()
        self._tell(StepBegan(key))
        try:
            plain, restored = await self._run_step(key, functools.partial(fn, *args, **kwargs), is_async(fn), adapter)
        except BaseException:
            self._tell(StepEnded(key, "failed"))
            raise
        self._tell(StepEnded(key, "ran", plain))
        self._answers.computed[key] = Computed(plain)
        if self._note is not None:
            # At once, as what it did may be what must not be done again.
            await self._note(Noted(self._answers.revision, key, plain))
            self._answers.kept.add(key)
        return restored

    async def _run_step(
        self, key: str, call: Callable[[], Any], in_place: bool, adapter: TypeAdapter[Any]
    ) -> tuple[Any, Any]:
        """What a step yields: in its JSON form, and as every leg will see it."""
        value = await call() if in_place else await self._run_in_thread(call)
        if inspect.isawaitable(value):
            value = await value
        try:
            plain = adapter.dump_python(value, mode="json", by_alias=True, warnings="error")
            # Every leg sees the same value: the first one, too, gets it as it will come back from the token.
            return plain, adapter.validate_python(plain)
        except (PydanticSerializationError, PydanticUserError, ValidationError, ValueError) as error:
            # Without its cause, which quotes the value in the traceback.
            raise ValueNotStorable(key, reason=without_value(error)) from None

    def _tell(self, fact: StepBegan | StepEnded) -> None:
        if self._watch is not None:
            self._watch(fact)

    def _enter(self, key: str) -> None:
        if not self._open:
            raise AskedTooLate(key)
        if not key:
            raise BodyMistake("a question or step needs a name that is not empty")
        if key.startswith("~"):
            raise BodyMistake(f"{key!r} cannot name a question or step; give it a name that does not begin with '~'")
        if self._is_taken(key):
            raise KeyUsedTwice(key, formerly_of=self._former.get(key))
        self._used[key] = None

    def _leave_name(self, old: str, *, of: str) -> None:
        """Note a name that a question had before, and that no other of the call may have, or have had."""
        if self._is_taken(old):
            # An answer known by it is perhaps to the other one, which may read alike.
            raise KeyUsedTwice(old, formerly_of=of)
        self._former[old] = of

    def _is_taken(self, name: str) -> bool:
        return name in self._used or name in self._former or name in self._plan.names

    async def _settle(self, questions: Mapping[str, Marker | Review], was: tuple[str, ...]) -> dict[str, Outcome]:
        if self.is_live:
            # One round at a time: concurrent tasks of a body take turns at the client.
            if self._lock is None:
                self._lock = anyio.Lock()
            async with self._lock:
                return await self._settle_now(questions, was)
        return await self._settle_now(questions, was)

    async def _settle_now(self, questions: Mapping[str, Marker | Review], was: tuple[str, ...]) -> dict[str, Outcome]:
        outcomes: dict[str, Outcome] = {}
        while True:
            for key, marker in questions.items():
                if key not in outcomes:
                    outcome = self._answers.settle((key, *was), marker)
                    if outcome is not None:
                        outcomes[key] = outcome
            waiting = [self._answers.open[key] for key in questions if key not in outcomes]
            if not waiting:
                # In the order of the questions: one that was asked again, or stood in for, is settled after the others.
                return {key: outcomes[key] for key in questions}
            try:
                await self._rounds.put(waiting)
            except Suspension:
                self._ended_by = tuple(self._rounds.batch)
                raise


@functools.lru_cache(maxsize=256)
def _adapter(returns: Any) -> TypeAdapter[Any]:
    return TypeAdapter(returns)
