"""`LegByLeg`, which sends a retry-era call one leg at a time."""

from collections.abc import Mapping
from typing import Any, Final, cast

from mcp.client import Client
from mcp.server.auth.provider import AccessToken
from mcp_types import CallToolResult, ElicitRequestFormParams, InputRequiredResult, InputResponse

from roundtrip.adapters.finding import is_fastmcp, low_level
from roundtrip.client.legs import Era, LegRequest, LegResult, asking, callbacks, never_live, send, within
from roundtrip.testing.conversations import AskedQuestion
from roundtrip.testing.networks.fleet import Instances, Target, acting_as
from roundtrip.testing.scripts import Reply, response_to

_FORM: Final = ElicitRequestFormParams(message="", requested_schema={})


class LegByLeg:
    """A client that sends single legs. Each leg goes to the server's next instance, through a new SDK client.

    The test provides every answer. Use `LegByLeg` to test a single leg, a token or a rejection. For whole calls, use
    `User`.

    Args:
        server: The server, as for `User`. A factory makes a new instance for every leg.
        principal: The logged-in principal, as a subject or an access token. Only servers in memory receive it.
        **options: Arguments for `mcp.Client`. Callbacks are never called; they serve only to declare capabilities. By
            default, the client declares all capabilities. To leave one out, pass None for its callback.

    Example:
        ```python
        legs = LegByLeg([one, another])
        await legs.leg("book", {"film": "Solaris"})
        assert list(legs.questions) == ["seat"]
        result = await legs.leg("book", {"film": "Solaris"}, answers={"seat": {"row": "back"}}, state=legs.token)
        ```
    """

    def __init__(self, server: Target, *, principal: AccessToken | str | None = None, **options: Any) -> None:
        self._instances = Instances(server).in_turn()
        self._principal = principal
        self._options: dict[str, Any] = {**callbacks(never_live), **options}
        self.rounds: list[InputRequiredResult] = []
        """Every round of questions, as received."""

    @property
    def token(self) -> str:
        """Return the last round's request state.

        Raises:
            AssertionError: The last round has no request state.
        """
        state = self.rounds[-1].request_state
        if state is None:
            raise AssertionError("the last round has no request state")
        return state

    @property
    def questions(self) -> dict[str, AskedQuestion]:
        """Return the last round's questions, by name."""
        return _questions_of(self.rounds[-1])

    async def leg(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        answers: Mapping[str, Reply] | None = None,
        state: str | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> CallToolResult | InputRequiredResult:
        """Send one leg of a tool call. `answers` maps question names to answers in the same form as for `User`.

        Raises:
            MCPError: The server answered with a protocol error.
        """
        questions = {name: one for round_ in self.rounds for name, one in _questions_of(round_).items()}
        responses: dict[str, InputResponse] | None = None
        if answers is not None:
            # An answer to a question that the server did not ask is sent as a form answer.
            responses = {
                name: response_to(questions.get(name, AskedQuestion(name, _FORM)), reply)
                for name, reply in answers.items()
            }
        result = await self.send(LegRequest(tool, dict(arguments or {}), responses, state, meta=meta))
        return cast("CallToolResult | InputRequiredResult", result)

    async def send(self, leg: LegRequest) -> LegResult:
        """Send one leg to a tool, prompt or resource."""
        instance = next(self._instances)
        target = low_level(instance) if is_fastmcp(instance) else instance
        client = Client(cast("Any", target), mode=Era.RETRY.mode, **self._options)
        with acting_as(self._principal):
            result = await within(client, lambda client: send(client.session, leg))
        if isinstance(result, InputRequiredResult):
            self.rounds.append(result)
        return result


def _questions_of(round_: InputRequiredResult) -> dict[str, AskedQuestion]:
    return {name: AskedQuestion(name, asking(request)) for name, request in (round_.input_requests or {}).items()}
