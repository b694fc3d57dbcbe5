"""One question ready to be put: the request it sends, what it is pinned to, and how its answer is read."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from mcp_types import (
    ClientCapabilities,
    CreateMessageRequest,
    CreateMessageResult,
    CreateMessageResultWithTools,
    ElicitationCapability,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    FormElicitationCapability,
    InputRequest,
    InputResponse,
    ListRootsRequest,
    ListRootsResult,
    RootsCapability,
    SamplingCapability,
    SamplingMessage,
    SamplingToolsCapability,
    TextContent,
)
from pydantic import BaseModel, ValidationError

from roundtrip.asks.forms import AnswerInvalid, Form, form_of
from roundtrip.asks.markers import ATTEMPTS, NOTHING, Elicit, ListRoots, Marker, Sample, SdkElicit, SdkSample
from roundtrip.asks.outcomes import Outcome
from roundtrip.asks.samples import read_structured, text_of
from roundtrip.errors import CapabilityMissing
from roundtrip.machine.journal import Action, digest

__all__ = ["FormQuestion", "ModelQuestion", "Question", "question_of"]

_ACTIONS = {"accept": Action.ACCEPT, "decline": Action.DECLINE, "cancel": Action.CANCEL}


@dataclass(frozen=True, slots=True)
class FormQuestion:
    """A form for the user (`elicitation/create`)."""

    text: str
    form: Form
    message: str
    attempts: int = ATTEMPTS
    volatile_ok: bool = False
    otherwise: Any = NOTHING

    @property
    def schema(self) -> str:
        """What its schema is pinned by."""
        return self.form.digest

    @property
    def result_type(self) -> type[BaseModel]:
        """The answer's wire type."""
        return ElicitResult

    def request(self, complaint: str | None = None) -> InputRequest:
        """The request that puts the question; `complaint` says what was wrong with the answer before."""
        text = self.text if complaint is None else f"{self.text}\n\n(The last answer was not valid: {complaint})"
        schema = cast("dict[str, Any]", self.form.schema)
        return ElicitRequest(params=ElicitRequestFormParams(message=text, requested_schema=schema))

    def read(self, response: InputResponse) -> tuple[Outcome, Any]:
        """The outcome of an answer, and the data that will restore it.

        Raises:
            AnswerInvalid: The answer does not fit.
        """
        if not isinstance(response, ElicitResult):
            raise AnswerInvalid("it is not the answer to a form")
        action = _ACTIONS[response.action]
        if action is not Action.ACCEPT:
            return Outcome(action=action), None
        return Outcome(self.form.parse(response.content)), response.content

    def restore(self, action: Action, data: Any) -> Outcome:
        """The outcome that `read` gave on an earlier leg.

        Raises:
            AnswerInvalid: The data no longer fits the form.
        """
        return Outcome(self.form.parse(data)) if action is Action.ACCEPT else Outcome(action=action)

    def plain(self, value: Any) -> Any:
        """The JSON form of a value that stands in for an answer, as `restore` reads it."""
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
    """A question the client's software answers: sampling or roots. It has no decline."""

    wire: InputRequest
    result_type: type[BaseModel]
    message: str
    schema: str
    attempts: int = ATTEMPTS
    volatile_ok: bool = False
    otherwise: Any = NOTHING
    output: Any = None
    """The type of the JSON that a model has to answer with."""

    def request(self, complaint: str | None = None) -> InputRequest:
        """The request that puts the question; `complaint` tells a model what was wrong with its answer before."""
        if complaint is None or not isinstance(self.wire, CreateMessageRequest):
            return self.wire
        text = f"The last answer was not valid: {complaint}. Answer again."
        again = SamplingMessage(role="user", content=TextContent(type="text", text=text))
        params = self.wire.params.model_copy(update={"messages": [*self.wire.params.messages, again]})
        return CreateMessageRequest(params=params)

    def read(self, response: InputResponse) -> tuple[Outcome, Any]:
        """The outcome of an answer, and the data that will restore it.

        Raises:
            AnswerInvalid: The answer is to another kind of question.
        """
        # A tools request may be answered without tool use, which parses as the plain result: go by the wire form.
        data = response.model_dump(mode="json", by_alias=True, exclude_none=True)
        return self.restore(Action.ACCEPT, data), data

    def restore(self, action: Action, data: Any) -> Outcome:
        """The outcome of an answer in its wire form.

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
        """The JSON form of a result that stands in for an answer, as `restore` reads it."""
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


Question = FormQuestion | ModelQuestion

_ROOTS = ModelQuestion(ListRootsRequest(), ListRootsResult, digest("roots/list"), digest("ListRootsResult"))


def question_of(marker: Marker) -> Question:
    """The question a marker stands for.

    Raises:
        SchemaNotRenderable: The protocol cannot show its schema.
    """
    if isinstance(marker, SdkElicit):
        form = form_of(marker.schema)
        if isinstance(marker, Elicit):
            return FormQuestion(
                marker.message,
                form,
                digest(marker.message),
                marker.attempts,
                marker.volatile_ok,
                marker.otherwise,
            )
        return FormQuestion(marker.message, form, digest(marker.message))
    if isinstance(marker, SdkSample):
        request = CreateMessageRequest(params=marker.params)
        with_tools = marker.params.tools is not None or marker.params.tool_choice is not None
        result_type = CreateMessageResultWithTools if with_tools else CreateMessageResult
        params: Mapping[str, Any] = marker.params.model_dump(mode="json", by_alias=True, exclude_none=True)
        text = json.dumps(params, sort_keys=True, separators=(",", ":"))
        message, schema = digest(text), digest(result_type.__name__)
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
