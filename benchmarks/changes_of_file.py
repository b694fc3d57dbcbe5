"""Count how often a call changes from one file to another in roundtrip. The call has one question, and so two legs.

A reader who follows the request makes the same changes: from the caller's file to the called function's file. Run it as
`python -m benchmarks.changes_of_file`; `--pairs` lists the files that call each other most.
"""

import argparse
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Final

import anyio
from mcp.client import Client
from mcp.client.context import ClientRequestContext
from mcp_types import ElicitRequestParams, ElicitResult
from pydantic import BaseModel

import roundtrip
from roundtrip import Elicit, Resolve, Server

MAX_FILES: Final = 32
MAX_CHANGES: Final = 109

_PACKAGE = str(Path(roundtrip.__file__).parent) + "/"


class Party(BaseModel):
    people: int


async def ask_size() -> Elicit[Party]:
    return Elicit("How many are you?", Party)


server = Server[Any]("restaurant")


@server.tool()
async def book(party: Annotated[Party, Resolve(ask_size)]) -> str:
    return f"A table for {party.people}."


@dataclass
class CallProfile:
    """Function calls in roundtrip that a profiler sees."""

    seen: set[FrameType] = field(default_factory=set[FrameType])
    files: set[str] = field(default_factory=set[str])
    changes: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])

    def profile(self, frame: FrameType, event: str, argument: object) -> None:
        """Record one call. A coroutine that continues after a wait is the same call."""
        file = frame.f_code.co_filename
        if event != "call" or not file.startswith(_PACKAGE) or frame in self.seen:
            return
        self.seen.add(frame)
        self.files.add(file)
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(_PACKAGE):
            caller = caller.f_back
        source = caller.f_code.co_filename if caller is not None else ""
        if source != file:
            self.changes[source.removeprefix(_PACKAGE), file.removeprefix(_PACKAGE)] += 1


async def answer(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
    del context, params
    return ElicitResult(action="accept", content={"people": 3})


async def follow() -> CallProfile:
    """Make the call twice and profile the second one, when everything lazy has been loaded."""
    calls = CallProfile()
    async with Client(server, mode="2026-07-28", elicitation_callback=answer) as client:
        await client.call_tool("book", {})
        sys.setprofile(calls.profile)
        try:
            result = await client.call_tool("book", {})
        finally:
            sys.setprofile(None)
    if result.structured_content != {"result": "A table for 3."}:
        raise RuntimeError(f"the call ended with {result.content}")
    return calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", action="store_true", help="list the files that call each other most")
    options = parser.parse_args()
    calls = anyio.run(follow)
    found = f"{sum(calls.changes.values())} changes of file (at most {MAX_CHANGES}) over {len(calls.files)} files"
    print(f"{found} (at most {MAX_FILES}), in {len(calls.seen)} calls")
    if options.pairs:
        for (source, target), count in calls.changes.most_common():
            print(f"{count:4}  {source or '(outside)'} -> {target}")


if __name__ == "__main__":
    main()
