"""Questions on the wire: the requests that ask them, the digests that pin them, and their answers."""

import functools
import inspect
import json
import re
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from mcp_types import (
    ClientCapabilities,
    CreateMessageRequest,
    CreateMessageResult,
    CreateMessageResultWithTools,
    ElicitationCapability,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    FormElicitationCapability,
    InputRequest,
    InputRequiredResult,
    InputResponse,
    ListRootsRequest,
    ListRootsResult,
    RootsCapability,
    SamplingCapability,
    SamplingMessage,
    SamplingToolsCapability,
    TextContent,
    UrlElicitationCapability,
)
from mcp_types.methods import serialize_server_result
from pydantic import BaseModel, TypeAdapter, ValidationError
from typing_extensions import override

from roundtrip.errors import CapabilityMissing, RoundtripError
from roundtrip.machine.facts import Reason
from roundtrip.machine.journal import ACTIONS, Action, Asked
from roundtrip.machine.pins import LIST_ROOTS, PAGE, SAMPLE, SAMPLE_WITH_TOOLS, digest
from roundtrip.questions.forms import AnswerInvalid, adapter_for, form_of
from roundtrip.questions.markers import (
    ATTEMPTS,
    NOTHING,
    ElicitUrl,
    ExternalMarker,
    Marker,
    SdkElicit,
    SdkListRoots,
    SdkSample,
)
from roundtrip.questions.outcomes import Outcome
from roundtrip.questions.reviews import Review, ReviewForm
from roundtrip.questions.samples import read_structured, text_of
from roundtrip.revisions import FIRST_OF_RETRY_ERA

_SENT = ("properties", "required", "type")
"""The parts of a form schema that 2026-07-28 allows."""


class Question(ABC):
    """Question to the client, made from a marker."""

    __slots__ = ("attempts", "fallback", "message", "result_type", "schema", "text", "volatile_ok")
    is_for_anyone: bool = False
    """True if the model that called the tool may answer."""

    def __init__(
        self, marker: object, text: str, message: bytes, schema: bytes, result_type: type[BaseModel] = ElicitResult
    ) -> None:
        self.text = text
        """The message for the user, or the request's method if the client's software answers."""
        self.message = message
        """The wording's digest."""
        self.schema = schema
        """The schema's digest."""
        self.result_type = result_type
        """The answer's wire type."""
        # The SDK's markers have no options.
        self.attempts: int = getattr(marker, "attempts", ATTEMPTS)
        self.volatile_ok: bool = getattr(marker, "volatile_ok", False)
        self.fallback: Any = getattr(marker, "fallback", NOTHING)

    @abstractmethod
    def request(self, complaint: str | None = None, filled_in: Any = None) -> InputRequest:
        """Return the request that asks the question.

        Args:
            complaint: Why the last answer was not valid.
            filled_in: An earlier answer, whose valid fields become the form's defaults.
        """

    def sent(self, complaint: str | None = None, filled_in: Any = None) -> dict[str, Any]:
        """Return the request in JSON form, for a 2026-07-28 result."""
        asked = InputRequiredResult(input_requests={"": self.request(complaint, filled_in)})
        result = asked.model_dump(by_alias=True, mode="json", exclude_none=True)
        return serialize_server_result("tools/call", FIRST_OF_RETRY_ERA, result)["inputRequests"][""]

    @abstractmethod
    def read(self, response: InputResponse) -> tuple[Outcome, Any]:
        """Return an answer's outcome, and the data from which `restore` can recreate it.

        Raises:
            AnswerInvalid: The answer does not fit the question, or belongs to another kind of question.
        """

    @abstractmethod
    def restore(self, action: Action, data: Any) -> Outcome:
        """Return the outcome for data that an earlier `read` or `plain` returned.

        Raises:
            AnswerInvalid: The data does not fit the question.
        """

    @abstractmethod
    def plain(self, value: Any) -> Any:
        """Return a value in the JSON form that `restore` reads. The value is an answer that was given on a page, or a
        replacement for an answer.
        """

    def require(self, key: str, capabilities: ClientCapabilities | None) -> None:
        """Raise CapabilityMissing unless the client declared that it can answer this kind of question (S6)."""
        missing = self._missing(capabilities or ClientCapabilities())
        if missing is not None:
            raise CapabilityMissing(key, capability=missing[0], required=missing[1])

    @abstractmethod
    def _missing(self, declared: ClientCapabilities) -> tuple[str, ClientCapabilities] | None:
        """Return the missing capability's name and declaration; None if the client has declared it."""


class FormQuestion(Question):
    """Form for the user (`elicitation/create`)."""

    __slots__ = ("form", "guesses", "is_for_anyone")

    def __init__(self, marker: SdkElicit[Any] | Review) -> None:
        self.form = ReviewForm(marker.parts) if isinstance(marker, Review) else form_of(marker.schema)
        super().__init__(marker, marker.message, digest(marker.message), self.form.digest)
        self.guesses: int | None = getattr(marker, "guesses", None)
        """How many different answers a call accepts."""
        self.is_for_anyone = getattr(marker, "answered_by", "human") == "anyone"

    @override
    def request(self, complaint: str | None = None, filled_in: Any = None) -> InputRequest:
        schema = cast("dict[str, Any]", self._shown(filled_in))
        return ElicitRequest(
            params=ElicitRequestFormParams(message=with_complaint(self.text, complaint), requested_schema=schema)
        )

    @override
    def sent(self, complaint: str | None = None, filled_in: Any = None) -> dict[str, Any]:
        # Build the JSON here: the SDK would build, validate and write its models three times.
        shown = self._shown(filled_in)
        schema = {key: shown[key] for key in _SENT if key in shown}
        params = {"message": with_complaint(self.text, complaint), "mode": "form", "requestedSchema": schema}
        return {"method": "elicitation/create", "params": params}

    def _shown(self, filled_in: Any) -> Mapping[str, Any]:
        return self.form.schema if filled_in is None else self.form.filled_in(filled_in)

    @override
    def read(self, response: InputResponse) -> tuple[Outcome, Any]:
        if not isinstance(response, ElicitResult):
            raise AnswerInvalid("it is not the answer to a form")
        action = ACTIONS[response.action]
        data = response.content if action is Action.ACCEPT else None
        return self.restore(action, data), data

    @override
    def restore(self, action: Action, data: Any) -> Outcome:
        return Outcome(self.form.parse(data)) if action is Action.ACCEPT else Outcome(action=action)

    @override
    def plain(self, value: Any) -> Any:
        return self.form.plain(value)

    @override
    def _missing(self, declared: ClientCapabilities) -> tuple[str, ClientCapabilities] | None:
        shows = declared.elicitation
        # An empty `elicitation: {}` comes from protocol versions without modes, and means forms.
        if shows is not None and (shows.form is not None or shows.url is None):
            return None
        needed = ElicitationCapability(form=FormElicitationCapability())
        return "form elicitation", ClientCapabilities(elicitation=needed)


class UrlQuestion(Question):
    """Page for the user (`elicitation/create` in URL mode). With a `done` function, consent is not yet the answer."""

    __slots__ = ("done", "elicitation_id", "url", "wait")

    def __init__(self, marker: ElicitUrl[Any]) -> None:
        super().__init__(marker, marker.message, digest_of_page(marker.message, marker.url), PAGE)
        self.url = marker.url
        self.done = marker.done
        self.wait = marker.wait
        self.elicitation_id = marker.elicitation_id or ""

    @property
    def params(self) -> ElicitRequestURLParams:
        """Return the request's parameters."""
        return ElicitRequestURLParams(message=self.text, url=self.url, elicitation_id=self.elicitation_id)

    @override
    def request(self, complaint: str | None = None, filled_in: Any = None) -> InputRequest:
        return ElicitRequest(params=self.params.model_copy(update={"message": with_complaint(self.text, complaint)}))

    @override
    def read(self, response: InputResponse) -> tuple[Outcome, Any]:
        if not isinstance(response, ElicitResult):
            raise AnswerInvalid("it is not the answer to a page")
        return self.restore(ACTIONS[response.action], None), None

    @override
    def restore(self, action: Action, data: Any) -> Outcome:
        try:
            return Outcome(True if data is None else _values_of(self.done).validate_python(data), action)
        except ValidationError as error:
            raise AnswerInvalid("its value does not have the type that `done` returns") from error

    @override
    def plain(self, value: Any) -> Any:
        return _values_of(self.done).dump_python(value, mode="json", by_alias=True, warnings="error")

    @override
    def _missing(self, declared: ClientCapabilities) -> tuple[str, ClientCapabilities] | None:
        if declared.elicitation is not None and declared.elicitation.url is not None:
            return None
        needed = ElicitationCapability(url=UrlElicitationCapability())
        return "URL elicitation", ClientCapabilities(elicitation=needed)


class ModelQuestion(Question):
    """Question that the client's software answers. No user can decline it."""

    __slots__ = ()

    @override
    def read(self, response: InputResponse) -> tuple[Outcome, Any]:
        # The SDK parses an answer without tool use as the plain result, even if the request had tools. So read the JSON
        # form.
        data = self.plain(response)
        return self.restore(Action.ACCEPT, data), data

    @override
    def restore(self, action: Action, data: Any) -> Outcome:
        try:
            return Outcome(self.result_type.model_validate(data))
        except ValidationError as error:
            raise AnswerInvalid(f"it is not a {self.result_type.__name__}") from error

    @override
    def plain(self, value: Any) -> Any:
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)


class SampleQuestion(ModelQuestion):
    """Conversation for the client's model to complete (`sampling/createMessage`)."""

    __slots__ = ("output", "params")

    def __init__(self, marker: SdkSample) -> None:
        self.params = marker.params
        self.output: Any = getattr(marker, "result_type", None)
        """The type that the model's JSON answer must have."""
        with_tools = marker.params.tools is not None or marker.params.tool_choice is not None
        text = json.dumps(self.plain(marker.params), sort_keys=True, separators=(",", ":"))
        super().__init__(
            marker,
            "sampling/createMessage",
            digest(text),
            SAMPLE_WITH_TOOLS if with_tools else SAMPLE,
            CreateMessageResultWithTools if with_tools else CreateMessageResult,
        )

    @override
    def request(self, complaint: str | None = None, filled_in: Any = None) -> InputRequest:
        if complaint is None:
            return CreateMessageRequest(params=self.params)
        text = TextContent(type="text", text=complaint_for_model(complaint))
        messages = [*self.params.messages, SamplingMessage(role="user", content=text)]
        return CreateMessageRequest(params=self.params.model_copy(update={"messages": messages}))

    @override
    def restore(self, action: Action, data: Any) -> Outcome:
        outcome = super().restore(action, data)
        if self.output is not None:
            read_structured(self.output, text_of(outcome.value))
        return outcome

    @override
    def _missing(self, declared: ClientCapabilities) -> tuple[str, ClientCapabilities] | None:
        samples, with_tools = declared.sampling, self.result_type is CreateMessageResultWithTools
        if samples is not None and (not with_tools or samples.tools is not None):
            return None
        needed = SamplingCapability(tools=SamplingToolsCapability() if with_tools else None)
        return "sampling.tools" if with_tools else "sampling", ClientCapabilities(sampling=needed)


class RootsQuestion(ModelQuestion):
    """Question to the client about its roots (`roots/list`)."""

    __slots__ = ()

    def __init__(self, marker: SdkListRoots) -> None:
        super().__init__(marker, "roots/list", digest("roots/list"), LIST_ROOTS, ListRootsResult)

    @override
    def request(self, complaint: str | None = None, filled_in: Any = None) -> InputRequest:
        return ListRootsRequest()

    @override
    def _missing(self, declared: ClientCapabilities) -> tuple[str, ClientCapabilities] | None:
        return None if declared.roots is not None else ("roots", ClientCapabilities(roots=RootsCapability()))


class ExternalQuestion(Question):
    """A question that is never sent to a client. One of the leg's settlers provides the outcome."""

    __slots__ = ("by",)
    by: str
    """The people who decide the question."""

    @abstractmethod
    def no_settler(self, key: str) -> RoundtripError:
        """Return the error for a call that has no settler for this question."""

    @override
    def request(self, complaint: str | None = None, filled_in: Any = None) -> InputRequest:
        raise RuntimeError("an external question must not be sent to a client")

    @override
    def read(self, response: InputResponse) -> tuple[Outcome, Any]:
        raise AnswerInvalid("the question must not be answered by a client")

    @override
    def _missing(self, declared: ClientCapabilities) -> tuple[str, ClientCapabilities] | None:
        raise RuntimeError("an external question must not be sent to a client")


def complaint_for_model(complaint: str) -> str:
    """Return the message that asks a model again after an invalid answer."""
    return f"The last answer was not valid: {complaint}. Answer again."


def with_complaint(text: str, complaint: str | None) -> str:
    """Return a question's message, followed by the complaint about the last answer, if any."""
    return text if complaint is None else f"{text}\n\n(The last answer was not valid: {complaint})"


@dataclass(slots=True, eq=False, repr=False)
class PendingQuestion:
    """Unanswered question, with everything needed to ask it and to write its journal entry."""

    key: str
    question: Question
    asked: Asked
    reason: Reason = Reason.NEW
    changed: tuple[str, ...] = ()
    """The parts that have changed since the user answered the question. If there is no answer, the parts that have
    changed since the user last saw the question.
    """
    former: str | None = None
    """The question's earlier name, if it was renamed."""
    complaint: str | None = None
    consented: bool = False
    """True if the user agreed to visit the page. The user may already have finished on the page."""
    decisive: bool = False
    """True if declining the question ends the call, because a consumer needs the bare value."""
    lost: tuple[str, ...] = ()
    """The changed parts that caused the server to drop an answer."""
    guess: Any = NOTHING
    """An answer that has arrived, but must be counted as a guess before it is read."""
    invalid_answer: Any = None
    """The last answer, if it was invalid. Its valid fields become the form's defaults."""
    names: tuple[str, ...] = ()
    """The question's name, then its former names."""
    is_over: bool = False
    """True if an external question has expired, and `fallback` must replace its outcome."""
    after: tuple[str, ...] = ()
    """Names of the questions that had been answered when the call began to wait for this external question."""

    def request(self) -> InputRequest:
        """Return the request that asks the question."""
        return self.question.request(self.complaint, self.invalid_answer)

    def sent(self) -> dict[str, Any]:
        """Return the request in JSON form, for a 2026-07-28 result."""
        return self.question.sent(self.complaint, self.invalid_answer)


TICKET = re.compile(r"rt1\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]{43}", re.ASCII)
"""Ticket pattern. A URL question's pin ignores the ticket, because the ticket changes with the key."""

TICKET_SHOWN = "<ticket>"
"""Text that replaces a ticket where the ticket must not be shown."""


def digest_of_page(message: str, url: str) -> bytes:
    """Return the digest of a page's message and URL, without its tickets."""
    return digest(f"{message}\0{TICKET.sub('rt1', url)}")


def question_of(marker: Marker | Review) -> Question:
    """Return a marker's question.

    Raises:
        SchemaNotRenderable: The protocol cannot show the marker's schema.
    """
    if isinstance(marker, (SdkElicit, Review)):
        return FormQuestion(marker)
    if isinstance(marker, ElicitUrl):
        return UrlQuestion(marker)
    if isinstance(marker, ExternalMarker):
        return marker.question()
    return SampleQuestion(marker) if isinstance(marker, SdkSample) else RootsQuestion(marker)


def _values_of(done: Callable[..., Any] | None) -> TypeAdapter[Any]:
    """Return the adapter for the values that `done` returns. Without `done`, the value is the consent, `True`."""
    return adapter_for(bool if done is None else _returned_by(done))


def _returned_by(done: Callable[..., Any]) -> Any:
    """Return the function's return annotation. Return `Any` if there is no annotation or it cannot be evaluated."""
    while isinstance(done, functools.partial):
        done = done.func
    function = inspect.unwrap(done) if inspect.isroutine(done) else type(done).__call__
    written = getattr(function, "__annotations__", {})
    if "return" not in written:
        return Any
    # Evaluate only the return annotation: the parameters may have annotations that exist only for type checkers.
    lone = types.SimpleNamespace(__annotations__={"return": written["return"]})
    try:
        hints = typing.get_type_hints(lone, globalns=getattr(function, "__globals__", {}), include_extras=True)
    except Exception:  # noqa: BLE001 - an annotation may be any expression
        return Any
    return hints["return"]
