"""Questions on the wire: their requests, the digests that pin them, and their answers."""

import json
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple, cast

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

from roundtrip.errors import CapabilityMissing
from roundtrip.machine.facts import Reason
from roundtrip.machine.journal import ACTIONS, Action, Asked
from roundtrip.machine.pins import LIST_ROOTS, PAGE, SAMPLE, SAMPLE_WITH_TOOLS, digest
from roundtrip.questions.forms import AnswerInvalid, Form, form_of
from roundtrip.questions.markers import (
    ATTEMPTS,
    NOTHING,
    Elicit,
    ElicitUrl,
    ListRoots,
    Marker,
    Sample,
    SdkElicit,
    SdkSample,
)
from roundtrip.questions.outcomes import Outcome
from roundtrip.questions.reviews import Review, ReviewForm
from roundtrip.questions.samples import read_structured, text_of
from roundtrip.revisions import FIRST_OF_RETRY_ERA

__all__ = [
    "TICKET",
    "TICKET_SHOWN",
    "FormQuestion",
    "ModelQuestion",
    "PendingQuestion",
    "Question",
    "UrlQuestion",
    "complaint_for_model",
    "digest_of_page",
    "question_of",
    "with_complaint",
]

_SENT = ("properties", "required", "type")
"""The parts of a form's schema that 2026-07-28 allows."""


class FormQuestion(NamedTuple):
    """Form for the user (`elicitation/create`)."""

    text: str
    form: Form | ReviewForm
    message: bytes
    """The digest of its text."""
    schema: bytes
    """The digest of its schema."""
    attempts: int = ATTEMPTS
    volatile_ok: bool = False
    otherwise: Any = NOTHING
    guesses: int | None = None
    """The number of different answers that a call accepts."""

    @property
    def result_type(self) -> type[BaseModel]:
        """Return the wire type of the answer."""
        return ElicitResult

    def request(self, complaint: str | None = None, filled_in: Any = None) -> InputRequest:
        """Return the request that asks the question.

        Args:
            complaint: The reason why the last answer was not valid.
            filled_in: An earlier answer, whose valid fields the form shows as its defaults.
        """
        schema = cast("dict[str, Any]", self._shown(filled_in))
        return ElicitRequest(
            params=ElicitRequestFormParams(message=with_complaint(self.text, complaint), requested_schema=schema)
        )

    def sent(self, complaint: str | None = None, filled_in: Any = None) -> dict[str, Any]:
        """Return the same request as a result of 2026-07-28 carries it."""
        # By hand: the SDK would build, validate and write its models three times.
        shown = self._shown(filled_in)
        schema = {key: shown[key] for key in _SENT if key in shown}
        params = {"message": with_complaint(self.text, complaint), "mode": "form", "requestedSchema": schema}
        return {"method": "elicitation/create", "params": params}

    def _shown(self, filled_in: Any) -> Mapping[str, Any]:
        return self.form.schema if filled_in is None else self.form.filled_in(filled_in)

    def read(self, response: InputResponse) -> tuple[Outcome, Any]:
        """Return the outcome of an answer, and the data that restores it.

        Raises:
            AnswerInvalid: The answer does not fit.
        """
        if not isinstance(response, ElicitResult):
            raise AnswerInvalid("it is not the answer to a form")
        action = ACTIONS[response.action]
        if action is not Action.ACCEPT:
            return Outcome(action=action), None
        return Outcome(self.form.parse(response.content)), response.content

    def restore(self, action: Action, data: Any) -> Outcome:
        """Return the outcome that `read` returned on an earlier leg.

        Raises:
            AnswerInvalid: The data no longer fits the form.
        """
        return Outcome(self.form.parse(data)) if action is Action.ACCEPT else Outcome(action=action)

    def plain(self, value: Any) -> Any:
        """Return the JSON form, as `restore` reads it, of a value that stands in for an answer."""
        return self.form.plain(value)

    def require(self, key: str, capabilities: ClientCapabilities | None) -> None:
        """Raise CapabilityMissing unless the client declared that it shows forms (S6)."""
        declared = capabilities.elicitation if capabilities is not None else None
        # A bare `elicitation: {}` is from before there were modes, and means forms.
        if declared is None or (declared.form is None and declared.url is not None):
            needed = ClientCapabilities(elicitation=ElicitationCapability(form=FormElicitationCapability()))
            raise CapabilityMissing(key, capability="form elicitation", required=needed)


@dataclass(frozen=True, slots=True)
class ModelQuestion:
    """Question that the client's software answers: sampling or roots. No user can decline it."""

    wire: InputRequest
    result_type: type[BaseModel]
    message: bytes
    schema: bytes
    attempts: int = ATTEMPTS
    volatile_ok: bool = False
    otherwise: Any = NOTHING
    output: Any = None
    """The type of the JSON that a model must answer with."""

    def request(self, complaint: str | None = None, filled_in: Any = None) -> InputRequest:
        """Return the request that asks the question; a model reads the complaint about its last answer."""
        del filled_in
        if complaint is None or not isinstance(self.wire, CreateMessageRequest):
            return self.wire
        text = TextContent(type="text", text=complaint_for_model(complaint))
        again = SamplingMessage(role="user", content=text)
        params = self.wire.params.model_copy(update={"messages": [*self.wire.params.messages, again]})
        return CreateMessageRequest(params=params)

    def sent(self, complaint: str | None = None, filled_in: Any = None) -> dict[str, Any]:
        """Return the same request as a result of 2026-07-28 carries it."""
        return _as_sent(self.request(complaint, filled_in))

    def read(self, response: InputResponse) -> tuple[Outcome, Any]:
        """Return the outcome of an answer, and the data that restores it.

        Raises:
            AnswerInvalid: The answer is to another kind of question.
        """
        # An answer without tool use parses as the plain result, also for a request with tools: read the wire form.
        data = response.model_dump(mode="json", by_alias=True, exclude_none=True)
        return self.restore(Action.ACCEPT, data), data

    def restore(self, action: Action, data: Any) -> Outcome:
        """Return the outcome of an answer in its wire form.

        Raises:
            AnswerInvalid: The data is the answer to another kind of question.
        """
        del action
        try:
            result = self.result_type.model_validate(data)
        except ValidationError as error:
            raise AnswerInvalid(f"it is not a {self.result_type.__name__}") from error
        if self.output is not None and isinstance(result, CreateMessageResult | CreateMessageResultWithTools):
            read_structured(self.output, text_of(result))
        return Outcome(result)

    def plain(self, value: Any) -> Any:
        """Return the JSON form, as `restore` reads it, of a result that stands in for an answer."""
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)

    def require(self, key: str, capabilities: ClientCapabilities | None) -> None:
        """Raise CapabilityMissing unless the client declared that it answers such requests (S6)."""
        if isinstance(self.wire, ListRootsRequest):
            if capabilities is None or capabilities.roots is None:
                needed = ClientCapabilities(roots=RootsCapability())
                raise CapabilityMissing(key, capability="roots", required=needed)
            return
        sampling = capabilities.sampling if capabilities is not None else None
        with_tools = self.result_type is CreateMessageResultWithTools
        if sampling is None or (with_tools and sampling.tools is None):
            tools = SamplingToolsCapability() if with_tools else None
            needed = ClientCapabilities(sampling=SamplingCapability(tools=tools))
            raise CapabilityMissing(key, capability="sampling.tools" if with_tools else "sampling", required=needed)


@dataclass(frozen=True, slots=True)
class UrlQuestion:
    """Page for the user (`elicitation/create` in URL mode). Agreeing to go there is not yet the answer."""

    text: str
    url: str
    message: bytes
    schema: bytes
    done: Callable[..., Any] | None
    wait: float
    volatile_ok: bool = False
    otherwise: Any = NOTHING
    elicitation_id: str = ""
    attempts: int = ATTEMPTS

    @property
    def result_type(self) -> type[BaseModel]:
        """Return the wire type of the answer."""
        return ElicitResult

    @property
    def params(self) -> ElicitRequestURLParams:
        """Return the parameters of the request."""
        return ElicitRequestURLParams(message=self.text, url=self.url, elicitation_id=self.elicitation_id)

    def request(self, complaint: str | None = None, filled_in: Any = None) -> InputRequest:
        """Return the request that asks the question."""
        del filled_in
        return ElicitRequest(params=self.params.model_copy(update={"message": with_complaint(self.text, complaint)}))

    def sent(self, complaint: str | None = None, filled_in: Any = None) -> dict[str, Any]:
        """Return the same request as a result of 2026-07-28 carries it."""
        return _as_sent(self.request(complaint, filled_in))

    def read(self, response: InputResponse) -> tuple[Outcome, Any]:
        """Return the outcome of the request to go to the page, and no data.

        Raises:
            AnswerInvalid: The answer is to another kind of question.
        """
        if not isinstance(response, ElicitResult):
            raise AnswerInvalid("it is not the answer to a page")
        return self.restore(ACTIONS[response.action], None), None

    def restore(self, action: Action, data: Any) -> Outcome:
        """Return the outcome of agreeing, or of a value that stands in for the page's.

        Raises:
            AnswerInvalid: The value is not of the type that the page yields.
        """
        try:
            return Outcome(True if data is None else _values_of(self.done).validate_python(data), action)
        except ValidationError as error:
            raise AnswerInvalid("it is not what the page yields") from error

    def plain(self, value: Any) -> Any:
        """Return the JSON form of a value of `done`."""
        return _values_of(self.done).dump_python(value, mode="json", by_alias=True, warnings="error")

    def require(self, key: str, capabilities: ClientCapabilities | None) -> None:
        """Raise CapabilityMissing unless the client declared that it shows pages (S6)."""
        declared = capabilities.elicitation if capabilities is not None else None
        if declared is None or declared.url is None:
            needed = ClientCapabilities(elicitation=ElicitationCapability(url=UrlElicitationCapability()))
            raise CapabilityMissing(key, capability="URL elicitation", required=needed)


def complaint_for_model(complaint: str) -> str:
    """Return the message that asks a model again, after an invalid answer."""
    return f"The last answer was not valid: {complaint}. Answer again."


def with_complaint(text: str, complaint: str | None) -> str:
    """Return the message of a question; a complaint tells the user what was wrong with the last answer."""
    return text if complaint is None else f"{text}\n\n(The last answer was not valid: {complaint})"


def _as_sent(request: InputRequest) -> dict[str, Any]:
    """Return a request as the SDK writes it into a result of 2026-07-28."""
    result = InputRequiredResult(input_requests={"": request}).model_dump(by_alias=True, mode="json", exclude_none=True)
    return serialize_server_result("tools/call", FIRST_OF_RETRY_ERA, result)["inputRequests"][""]


@lru_cache(maxsize=256)
def _values_of(done: Callable[..., Any] | None) -> TypeAdapter[Any]:
    """Return the adapter of the values of `done`, by its return annotation."""
    try:
        returns = typing.get_type_hints(done).get("return", Any) if done is not None else bool
    except (NameError, TypeError):
        returns = Any
    return TypeAdapter(returns)


Question = FormQuestion | UrlQuestion | ModelQuestion


@dataclass(slots=True)
class PendingQuestion:
    """Question that has no answer yet, as it will be asked and as the journal will note it."""

    key: str
    question: Question
    asked: Asked
    reason: Reason = Reason.NEW
    changed: tuple[str, ...] = ()
    """The differences from the wording that was answered, or at least shown."""
    former: str | None = None
    """The name under which an answer to it is known."""
    complaint: str | None = None
    consented: bool = False
    """True if the user agreed to go to the page, and may be done there by now."""
    decisive: bool = False
    """True if a user who declines this ends the call, as a consumer needs the bare value."""
    lost: tuple[str, ...] = ()
    """The change of wording to which an answer was lost."""
    guess: Any = NOTHING
    """An answer that has come, and has to be counted before it is read."""
    seed: Any = None
    """Its answer in an expired call, or an invalid one in this call. The form shows it as defaults."""

    def request(self) -> InputRequest:
        """Return the request that asks it."""
        return self.question.request(self.complaint, self.seed)

    def sent(self) -> dict[str, Any]:
        """Return the same request as a result of the retry era carries it."""
        return self.question.sent(self.complaint, self.seed)


TICKET = re.compile(r"rt1\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]{43}", re.ASCII)
"""Pattern of a ticket. Another key spells it differently, so the pin of a URL question leaves it out."""

TICKET_SHOWN = "<ticket>"
"""Text in the place of a ticket that must not be shown."""

_ROOTS = ModelQuestion(ListRootsRequest(), ListRootsResult, digest("roots/list"), LIST_ROOTS)


def digest_of_page(message: str, url: str) -> bytes:
    """Return the digest of a page's message and URL, without its tickets."""
    return digest(f"{message}\0{TICKET.sub('rt1', url)}")


def question_of(marker: Marker | Review) -> Question:
    """Return the question of a marker.

    Raises:
        SchemaNotRenderable: The protocol cannot show its schema.
    """
    if isinstance(marker, Review):
        review = ReviewForm(marker.parts)
        return FormQuestion(marker.message, review, digest(marker.message), review.digest)
    if isinstance(marker, SdkElicit):
        form = form_of(marker.schema)
        if isinstance(marker, Elicit):
            return FormQuestion(
                marker.message,
                form,
                digest(marker.message),
                form.digest,
                marker.attempts,
                marker.volatile_ok,
                marker.otherwise,
                marker.guesses,
            )
        return FormQuestion(marker.message, form, digest(marker.message), form.digest)
    if isinstance(marker, ElicitUrl):
        return UrlQuestion(
            marker.message,
            marker.url,
            digest_of_page(marker.message, marker.url),
            PAGE,
            marker.done,
            marker.wait,
            marker.volatile_ok,
            marker.otherwise,
            marker.elicitation_id or "",
        )
    if isinstance(marker, SdkSample):
        request = CreateMessageRequest(params=marker.params)
        with_tools = marker.params.tools is not None or marker.params.tool_choice is not None
        result_type = CreateMessageResultWithTools if with_tools else CreateMessageResult
        params: Mapping[str, Any] = marker.params.model_dump(mode="json", by_alias=True, exclude_none=True)
        text = json.dumps(params, sort_keys=True, separators=(",", ":"))
        message, schema = digest(text), SAMPLE_WITH_TOOLS if with_tools else SAMPLE
        if not isinstance(marker, Sample):
            return ModelQuestion(request, result_type, message, schema)
        return ModelQuestion(
            request,
            result_type,
            message,
            schema,
            attempts=marker.attempts,
            otherwise=marker.otherwise,
            output=marker.result_type,
        )
    if isinstance(marker, ListRoots) and marker.otherwise is not NOTHING:
        return replace(_ROOTS, otherwise=marker.otherwise)
    return _ROOTS
