"""Count the modules and lines of roundtrip that two servers with one tool load before they have answered a call.

python -m benchmarks.hello_modules          # the figures and their limits
python -m benchmarks.hello_modules --list   # each module with its lines, the longest first
"""

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

_PLAIN: Final = """
@server.tool
async def greet(name: str) -> str:
    return f"Hello, {name}!"
"""

_ASKING: Final = """
async def ask_name() -> Elicit[Guest]:
    return Elicit("Who are you?", Guest)


@server.tool
async def greet(name: str, guest: Annotated[Guest, Resolve(ask_name)]) -> str:
    \"\"\"Greet a guest.

    Args:
        name: The name of the house.
    \"\"\"
    return f"Welcome to {name}, {guest.name}!"
"""

_PROGRAM: Final = """
import asyncio
import sys
from typing import Annotated

from mcp import Client
from mcp.types import ElicitResult
from pydantic import BaseModel

from roundtrip import Elicit, Resolve, Server

server = Server("hello", keys=["7f" * 32])


class Guest(BaseModel):
    name: str

%s

async def answer(context, params):
    return ElicitResult(action="accept", content={"name": "Ada"})


async def main() -> None:
    async with Client(server, elicitation_callback=answer) as client:
        result = await client.call_tool("greet", {"name": "Ada"})
    assert not result.is_error, result


asyncio.run(main())
for name, module in sorted(sys.modules.items()):
    if name.partition(".")[0] == "roundtrip":
        print(name, module.__file__)
"""


class HelloServer(NamedTuple):
    """A server with one tool, and the most modules and lines of roundtrip that it may load."""

    tool: str
    modules: int
    lines: int


SERVERS: Final = {
    "plain": HelloServer(_PLAIN, modules=73, lines=12_186),
    "asking": HelloServer(_ASKING, modules=97, lines=17_686),
}


def loaded(server: HelloServer) -> dict[str, int]:
    """Return the line count for each module that a server loads."""
    program = [sys.executable, "-c", _PROGRAM % server.tool]
    listed = subprocess.run(program, capture_output=True, text=True, timeout=60, check=True)
    files = (line.split(" ", 1) for line in listed.stdout.splitlines())
    return {name: len(Path(file).read_text("utf-8").splitlines()) for name, file in files}


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="list the modules too")
    shows_list = parser.parse_args().list
    for name, server in SERVERS.items():
        lines = loaded(server)
        if shows_list:
            for module, count in sorted(lines.items(), key=lambda item: -item[1]):
                print(f"{count:6} {module}")
        found = f"{len(lines)} modules (at most {server.modules}), {sum(lines.values()):,} lines"
        print(f"{name}: {found} (at most {server.lines:,})")


if __name__ == "__main__":
    main()
