"""`User`: a person with a script, in front of a real client."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final

from mcp.client import Client
from mcp.client.session import ClientRequestContext
from mcp.client.stdio import StdioServerParameters
from mcp.server import MCPServer
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CallToolResult,
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestParams,
    ElicitResult,
    ErrorData,
    InputRequest,
    InputRequiredResult,
    InputResponse,
    ListRootsResult,
    Root,
)

from roundtrip.machine.call import Step
from roundtrip.machine.facts import Watch
from roundtrip.machine.table import Event, State
from roundtrip.recording.tracing import Beginning, Refusal
from roundtrip.server.server import Server
from roundtrip.testing.conversations import Asking, Conversation, Question
from roundtrip.testing.eras import CHOSEN, Era
from roundtrip.testing.scripts import Answers, Script

__all__ = ["Target", "Unanswered", "Unused", "User", "assert_same_on_both_eras"]

Target = MCPServer[Any] | StdioServerParameters | str
"""A server in this process, a command that serves stdio, or a URL."""

_ROUNDS: Final = 50
_UNANSWERED: Final = -32000


class Unanswered(AssertionError):
    """The user was asked something that the script has no answer to."""

    def __init__(self, question: Question, asked: Sequence[Question]) -> None:
        before = "".join(f"\n  {one}" for one in asked)
        super().__init__(
            f"nothing in answers= fits the question {question}\nasked so far:{before}\n"
            "answers= takes replies by a question's name, by a pattern of its message, or by a function of it"
        )
        self.question = question
        self.asked = tuple(asked)


class Unused(AssertionError):
    """The script has answers that nobody has asked for."""

    def __init__(self, unused: Sequence[str], asked: Sequence[Question]) -> None:
        questions = "".join(f"\n  {one}" for one in asked) or " nothing"
        super().__init__(
            f"nobody asked for {', '.join(unused)}\nasked was:{questions}\nallow_unused=True lets that pass"
        )
        self.unused = tuple(unused)


class User:
    """A person with a script, who calls tools through a real `mcp` client.

    Args:
        server: A server, a URL, or the command of one that serves stdio.
        answers: What to answer, by the name of the question, by a compiled pattern of its message, or by a function of
            the `Question`. An answer is the content of the form (a mapping or a model), the value of a form with one
            field, `ACCEPT`, `DECLINE`, `CANCEL`, or a list of those for the times that it is asked.
        era: The era to speak on; by default that of the test (`@pytest.mark.roundtrip(eras=...)`), else the retry era.
        roots: The client's roots; without them it has none to tell.
        allow_unused: Whether answers may be left over.

    Example:
        ```python
        call = await User(server, answers={"choose_seat": {"row": "middle"}}).call("book", film="Solaris")
        assert call.value == "Booked Solaris, middle row."
        ```
    """

    def __init__(
        self,
        server: Target,
        answers: Answers | None = None,
        *,
        era: Era | None = None,
        roots: Sequence[Root] | None = None,
        allow_unused: bool = False,
    ) -> None:
        self._server = server
        self._answers: Answers = answers or {}
        self._era = era
        self._roots = roots
        self._allow_unused = allow_unused

    @property
    def era(self) -> Era:
        """The era that it speaks on."""
        return self._era if self._era is not None else CHOSEN.get()

    async def call(self, tool: str, arguments: Mapping[str, Any] | None = None, /, **more: Any) -> Conversation:
        """Call a tool, answer what it asks, and tell what came of it.

        Raises:
            Unanswered: The script has no answer to a question.
            Unused: It has answers that nobody has asked for.
            MCPError: The call ended with a protocol error.
        """
        run = _Run(Script(self._answers), self._roots)
        given = {**(arguments or {}), **more}
        with ExitStack() as watched:
            if isinstance(self._server, Server):
                run.conversation.states = [State.RECEIVED]
                watched.enter_context(self._server.watched_by(run))
            await self._play(run, tool, given)
        if run.failure is not None:
            raise run.failure
        unused = run.script.unused
        if unused and not self._allow_unused:
            raise Unused(unused, run.conversation.questions)
        return run.conversation

    async def _play(self, run: "_Run", tool: str, arguments: dict[str, Any]) -> None:
        roots = run.list_roots if self._roots is not None else None
        failed: MCPError | None = None
        async with Client(
            self._server,
            mode=self.era.value,
            elicitation_callback=run.elicit,
            sampling_callback=run.sample,
            list_roots_callback=roots,
        ) as client:
            try:
                await run.legs(client, tool, arguments)
            except MCPError as error:
                # Raised in here it would leave the client inside an exception group.
                failed = error
        if failed is not None and run.failure is None:
            raise failed


class _Run:
    """One call while it runs."""

    def __init__(self, script: Script, roots: Sequence[Root] | None) -> None:
        self.script = script
        self.conversation = Conversation()
        self.failure: AssertionError | None = None
        self._roots = roots
        self._live_keys: list[str] = []

    def begin(self, beginning: Beginning) -> Watch:
        """Watch the call, and not those that it makes."""
        return self._note if beginning.within is None else _ignore

    def refuse(self, refusal: Refusal) -> None:
        """A user sends back what they were given."""

    def _note(self, step: object) -> None:
        if not isinstance(step, Step):
            return
        if self.conversation.states is not None:
            self.conversation.states.append(step.target)
        if step.event is Event.ASK:
            self._live_keys = list(step.detail.get("keys", ()))
            self.conversation.rounds.append([])

    async def legs(self, client: Client, tool: str, arguments: dict[str, Any]) -> None:
        """Make request after request, until there is a result."""
        state: str | None = None
        answers: dict[str, InputResponse] | None = None
        for _ in range(_ROUNDS):
            self.conversation.legs += 1
            result = await client.session.call_tool(
                tool, arguments, input_responses=answers, request_state=state, allow_input_required=True
            )
            if not isinstance(result, InputRequiredResult):
                self.conversation.result = result
                return
            if self.conversation.states is None:
                self.conversation.rounds.append([])
            state, answers = result.request_state, {}
            for key, request in (result.input_requests or {}).items():
                answer = self._answer(Question(key, _asking(request)))
                if answer is None:
                    return
                answers[key] = answer
        self.failure = AssertionError(f"the call still asks after {_ROUNDS} rounds: {self.conversation.keys[-3:]}")

    async def elicit(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult | ErrorData:
        """Answer a form or a page over the open connection."""
        del context
        answer = self._answer_live(params)
        return answer if isinstance(answer, ElicitResult) else _no_answer()

    async def sample(
        self, context: ClientRequestContext, params: CreateMessageRequestParams
    ) -> CreateMessageResult | ErrorData:
        """Answer for the model over the open connection."""
        del context
        answer = self._answer_live(params)
        return answer if isinstance(answer, CreateMessageResult) else _no_answer()

    async def list_roots(self, context: ClientRequestContext) -> ListRootsResult:
        """Tell the roots over the open connection."""
        del context
        self._take(Question(self._next_key(), None))
        return ListRootsResult(roots=list(self._roots or ()))

    def _answer_live(self, params: Asking) -> InputResponse | None:
        return self._answer(Question(self._next_key(), params))

    def _next_key(self) -> str | None:
        if self.conversation.states is None:
            self.conversation.rounds.append([])
        return self._live_keys.pop(0) if self._live_keys else None

    def _answer(self, question: Question) -> InputResponse | None:
        self._take(question)
        if question.params is None:
            return ListRootsResult(roots=list(self._roots or ()))
        answer = self.script.reply(question)
        if answer is None and self.failure is None:
            self.failure = Unanswered(question, self.conversation.questions)
        return answer

    def _take(self, question: Question) -> None:
        self.conversation.rounds[-1].append(question)


def _ignore(fact: object) -> None:
    del fact


def _asking(request: InputRequest) -> Asking:
    if isinstance(request, ElicitRequest | CreateMessageRequest):
        return request.params
    return None


def _no_answer() -> ErrorData:
    return ErrorData(code=_UNANSWERED, message="the script has no answer")


async def assert_same_on_both_eras(
    make_server: Callable[[], MCPServer[Any]],
    tool: str,
    arguments: Mapping[str, Any] | None = None,
    *,
    answers: Answers | None = None,
    roots: Sequence[Root] | None = None,
) -> Conversation:
    """Make a call on each era, each on a server of its own, and compare the results, the questions and the states.

    Raises:
        AssertionError: They differ.
    """
    retry, live = [
        await User(make_server(), answers, era=era, roots=roots).call(tool, arguments) for era in (Era.RETRY, Era.LIVE)
    ]
    pairs: dict[str, tuple[Any, Any]] = {
        "results": (_plain(retry.result), _plain(live.result)),
        "questions": (
            [question.message for question in retry.questions],
            [question.message for question in live.questions],
        ),
        "forms": (_forms(retry), _forms(live)),
        "states": (retry.states, live.states),
    }
    for what, (one, other) in pairs.items():
        if one != other:
            raise AssertionError(f"the {what} differ\n  retry era: {one}\n  live era:  {other}")
    return retry


def _forms(call: Conversation) -> list[Any]:
    # The SDK's client drops the title of a form on the retry era.
    return [
        {name: value for name, value in (question.schema or {}).items() if name != "title"}
        for question in call.questions
    ]


def _plain(result: CallToolResult) -> Any:
    return result.model_dump(mode="json", by_alias=True, include={"content", "structured_content", "is_error"})
