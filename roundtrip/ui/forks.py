"""Forks of recorded calls. Each fork runs in a new process, so it uses the server's current code."""

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

_FORK_SECONDS: Final = 120.0
_MAX_TEXT_CHARS: Final = 2000
_MAX_FORKS: Final = 2


class Forks:
    """Forks of recorded calls, run on a server's current code.

    Args:
        target: The server's name on the command line; None if no server was named.
        files: The transcripts.
    """

    def __init__(self, target: str | None, files: Sequence[str | Path]) -> None:
        self.target = target
        self._files = [str(file) for file in files]
        self._limiter = anyio.CapacityLimiter(_MAX_FORKS)

    def find_rounds(self, call: TracedCall) -> tuple[Data | None, str]:
        """Return the rounds at which a call can be forked, or the reason that it cannot be forked."""
        if self.target is None:
            return None, "Name the server that should run it: roundtrip ui --server MODULE:SERVER"
        if not call.rounds:
            return None, "It asked nothing."
        try:
            recorded = recorded_call(call)
        except NotReplayable as error:
            return None, f"{error}."
        return {"rounds": [round_.number for round_ in recorded.rounds], "run": True}, ""

    async def fork(self, call_id: str, at: int, answers: Sequence[str], *, run: bool) -> Data:
        """Fork a call. Return both the recorded call and the fork.

        Raises:
            ValueError: The call cannot be forked; the message says why.
        """
        if self.target is None:
            raise ValueError("name the server that should run the fork: roundtrip ui --server MODULE:SERVER")
        if call_id.startswith("-"):
            # The `fork` command would parse the id as an option.
            raise ValueError("a call whose id begins with a dash cannot be forked")
        answer_options = [f"--answer={answer}" for answer in answers]
        command = [sys.executable, "-m", "roundtrip", "trace", "fork", "--json", "--server", self.target, f"--at={at}"]
        command += [*answer_options, *(["--run"] if run else []), "--", call_id, *self._files]
        async with self._limiter:
            try:
                with anyio.fail_after(_FORK_SECONDS):
                    process = await anyio.run_process(command, stdout=PIPE, stderr=PIPE, check=False)
            except TimeoutError:
                raise ValueError(f"the fork did not end within {_FORK_SECONDS:g} seconds") from None
            except OSError as error:
                # Only the answers can make the command line too long, because all other arguments are short.
                raise ValueError("the fork cannot start because an answer is too long") from error
        try:
            found: Any = json.loads(process.stdout)
        except ValueError:
            why = process.stderr.decode("utf-8", "replace").strip()[-_MAX_TEXT_CHARS:]
            raise ValueError(why.removeprefix("roundtrip trace: ") or "the fork ended without a result") from None
        return found
