"""Act on stored calls for an operator, and write each action to the operator log, with its outcome.

The commands and the pages of operators change stored calls only in this way.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final, Literal

from roundtrip.stored.content import CallNotChanged
from roundtrip.stored.operations import AnswerUnfit, CallOperations
from roundtrip.trace.writing.lines import OperatorAction
from roundtrip.trace.writing.operator_log import OperatorLog, OperatorLogUnwritable

_UNKNOWN: Final = "it was interrupted, or the store could not be used; look at the call to see if it was done"
_UNFIT: Final = "the answer does not fit its question"
"""Written in place of the rule, which may have values: the choices of a form may be known to its user only."""


class LoggedOperations:
    """Operations of one operator on the tasks of a server. An action that cannot be logged is not done.

    Args:
        operations: The operations.
        log: The operator log.
    """

    def __init__(self, operations: CallOperations, log: OperatorLog) -> None:
        self.operations = operations
        self._log = log

    async def act(
        self, call_id: str, action: Literal["cancel", "retry", "expire", "remind"], *, even_once: bool = False
    ) -> None:
        """Act on a call.

        Args:
            call_id: The call.
            action: The action.
            even_once: For `retry`, True to let a body begin again that must not begin twice.

        Raises:
            CallNotChanged: The call does not allow it.
            OperatorLogUnwritable: The operator log cannot be written.
            LedgerDown: The store cannot be used.
        """
        match action:
            case "cancel":
                await self._logged(call_id, action, lambda: self.operations.cancel(call_id))
            case "retry":
                await self._logged(call_id, action, lambda: self.operations.retry(call_id, even_once=even_once))
            case "expire":
                await self._logged(call_id, action, lambda: self.operations.expire(call_id))
            case "remind":
                await self._logged(call_id, action, lambda: self.operations.remind(call_id))

    async def answer(self, call_id: str, key: str, response: Mapping[str, Any]) -> None:
        """Store the answer of a test user to an open question; see `CallOperations.answer`, and `answer_made`."""

        async def make() -> Mapping[str, Any]:
            return response

        await self.answer_made(call_id, key, make)

    async def answer_made(self, call_id: str, key: str, make: Callable[[], Awaitable[Mapping[str, Any]]]) -> None:
        """Make and store the answer of a test user; the log has an answer that cannot be made, too.

        Raises:
            AnswerUnfit: The answer does not fit the form of the question.
            CallNotChanged: The call does not allow it.
            OperatorLogUnwritable: The operator log cannot be written.
            LedgerDown: The store cannot be used.
        """

        async def work() -> str | None:
            return await self.operations.answer(call_id, key, await make())

        await self._logged(call_id, "answer", work)

    async def _logged(self, call_id: str, action: OperatorAction, work: Callable[[], Awaitable[str | None]]) -> None:
        tool = await self.operations.tool_of(call_id)
        with self._log.open(call_id, tool, action) as write:
            try:
                why = await work()
            except CallNotChanged as error:
                write("rejected", _UNFIT if isinstance(error, AnswerUnfit) else str(error))
                raise
            except BaseException:
                with suppress(OperatorLogUnwritable):
                    write("rejected", _UNKNOWN)
                raise
            write("done", why or "")
