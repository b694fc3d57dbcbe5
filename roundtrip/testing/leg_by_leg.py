"""A call of the retry era taken apart, each leg sent by itself: `LegByLeg`."""

from collections.abc import Mapping
from typing import Any, Final, cast

from mcp.client import Client
from mcp.client.session import ClientRequestContext
from mcp.server.auth.provider import AccessToken
from mcp_types import CallToolResult, ElicitRequestFormParams, InputRequiredResult, InputResponse

from roundtrip.client.legs import Era, LegRequest, LegResult, asking, send
from roundtrip.testing.conversations import AskedQuestion
from roundtrip.testing.networks.fleet import Instances, Target, acting_as
from roundtrip.testing.scripts import Reply, response_to

__all__ = ["LegByLeg"]

_FORM: Final = ElicitRequestFormParams(message="", requested_schema={})


class LegByLeg:
    """Sends legs one at a time, each to the next of a server's instances, through a real client of its own.

    Nothing is answered that the test does not answer. Use it where a single leg, a token, or a refusal is the matter;
    for whole calls there is `User`.

    Args:
        server: As for `User`; a function makes a new instance for every leg.
        principal: Who is logged in, for servers in memory: a subject, or an access token.
        **options: Those of the client. Its callbacks are never called, and say what it declares that it can answer:
            everything, unless one is None.

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
        callbacks = ("elicitation_callback", "sampling_callback", "list_roots_callback")
        self._options: dict[str, Any] = {**dict.fromkeys(callbacks, _never), **options}
        self.rounds: list[InputRequiredResult] = []
        """Every round of questions, as it came."""

    @property
    def token(self) -> str:
        """The request state that came with the last round.

        Raises:
            AssertionError: It came without.
        """
        state = self.rounds[-1].request_state
        if state is None:
            raise AssertionError("the last round came without a request state")
        return state

    @property
    def questions(self) -> dict[str, AskedQuestion]:
        """The questions of the last round, by their names."""
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
        """Send one leg of a call of a tool, with answers as a `User` takes them, by name.

        Raises:
            MCPError: It was answered with an error of the protocol.
        """
        asked = {name: one for round_ in self.rounds for name, one in _questions_of(round_).items()}
        responses: dict[str, InputResponse] | None = None
        if answers is not None:
            # What nobody has asked for is sent as the answer to a form.
            responses = {
                name: response_to(asked.get(name, AskedQuestion(name, _FORM)), reply) for name, reply in answers.items()
            }
        result = await self.send(LegRequest(tool, dict(arguments or {}), responses, state, meta=meta))
        return cast("CallToolResult | InputRequiredResult", result)

    async def send(self, leg: LegRequest) -> LegResult:
        """Send a leg of anything: of a prompt or a resource as well; as `leg`."""
        failed: Exception | None = None
        result: LegResult | None = None
        with acting_as(self._principal):
            async with Client(cast("Any", next(self._instances)), mode=Era.RETRY.value, **self._options) as client:
                try:
                    result = await send(client.session, leg)
                except Exception as error:  # noqa: BLE001  # raised in here it would come out inside a group
                    failed = error
        if failed is not None or result is None:
            raise failed or AssertionError("no answer")
        if isinstance(result, InputRequiredResult):
            self.rounds.append(result)
        return result


def _questions_of(asked: InputRequiredResult) -> dict[str, AskedQuestion]:
    return {name: AskedQuestion(name, asking(request)) for name, request in (asked.input_requests or {}).items()}


async def _never(context: ClientRequestContext, *params: object) -> Any:
    raise AssertionError("the questions of the retry era are answered by the next leg")
