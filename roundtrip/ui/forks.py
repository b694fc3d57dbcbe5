"""Fork recorded calls in processes of their own, so that each fork runs the server's code as it is at that time."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from subprocess import PIPE
from typing import Any, Final

import anyio

from roundtrip.checking.recorded import NotReplayable, recorded_call
from roundtrip.trace.page.data import Data
from roundtrip.trace.reading.calls import TracedCall

_SECONDS: Final = 120.0
_MAX_TEXT: Final = 2000
_MAX_FORKS: Final = 2


class Forks:
    """Forks of the calls in some transcripts, on the code of a server.

    Args:
        target: The server as the command line names it; None if it names none.
        files: The transcripts.
    """

    def __init__(self, target: str | None, files: Sequence[str | Path]) -> None:
        self.target = target
        self._files = [str(file) for file in files]
        self._limiter = anyio.CapacityLimiter(_MAX_FORKS)

    def of(self, call: TracedCall) -> tuple[Data | None, str]:
        """Return the rounds at which a call can be forked, or the reason why it cannot be."""
        if self.target is None:
            return None, "Name the server whose code it should run on: roundtrip ui --server MODULE:SERVER"
        if not call.rounds:
            return None, "It asked nothing."
        try:
            recorded = recorded_call(call)
        except NotReplayable as error:
            return None, f"{error}."
        return {"rounds": [round_.number for round_ in recorded.rounds], "run": True}, ""

    async def fork(self, call_id: str, at: int, answers: Sequence[str], *, run: bool) -> Data:
        """Fork a call, and return the two ways.

        Raises:
            ValueError: It cannot be forked; the text says why.
        """
        if self.target is None:
            raise ValueError("name the server whose code it should run on: roundtrip ui --server MODULE:SERVER")
        if call_id.startswith("-"):
            # The command line would take it for an option.
            raise ValueError("a call whose id begins with a dash cannot be forked")
        own = [f"--answer={answer}" for answer in answers]
        command = [sys.executable, "-m", "roundtrip", "trace", "fork", "--json", "--server", self.target, f"--at={at}"]
        command += [*own, *(["--run"] if run else []), "--", call_id, *self._files]
        async with self._limiter:
            try:
                with anyio.fail_after(_SECONDS):
                    done = await anyio.run_process(command, stdout=PIPE, stderr=PIPE, check=False)
            except TimeoutError:
                raise ValueError(f"the fork did not end within {_SECONDS:g} seconds") from None
            except OSError as error:
                # Only the answers can be too long for a command line.
                raise ValueError("the fork cannot be started, as an answer is too long for it") from error
        try:
            found: Any = json.loads(done.stdout)
        except ValueError:
            why = done.stderr.decode("utf-8", "replace").strip()[-_MAX_TEXT:]
            raise ValueError(why.removeprefix("roundtrip trace: ") or "the fork ended without a result") from None
        return found
