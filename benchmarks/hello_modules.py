"""Count the modules and lines of roundtrip that a hello server loads before it has answered its first call.

python -m benchmarks.hello_modules          # the two figures and the targets
python -m benchmarks.hello_modules --list   # each module with its lines, the longest first
"""

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Final

MAX_MODULES: Final = 73
MAX_LINES: Final = 12_186

HELLO: Final = """
import asyncio
import sys

from mcp import Client

from roundtrip import Server

server = Server("hello", keys=["7f" * 32])


@server.tool
async def greet(name: str) -> str:
    return f"Hello, {name}!"


async def main() -> None:
    async with Client(server) as client:
        result = await client.call_tool("greet", {"name": "Ada"})
    assert not result.is_error, result


asyncio.run(main())
for name, module in sorted(sys.modules.items()):
    if name.partition(".")[0] == "roundtrip":
        print(name, module.__file__)
"""


def loaded() -> dict[str, int]:
    """Return the line count for each module that the server loads."""
    listed = subprocess.run([sys.executable, "-c", HELLO], capture_output=True, text=True, timeout=60, check=True)
    files = (line.split(" ", 1) for line in listed.stdout.splitlines())
    return {name: len(Path(file).read_text("utf-8").splitlines()) for name, file in files}


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="list the modules too")
    lines = loaded()
    if parser.parse_args().list:
        for name, count in sorted(lines.items(), key=lambda item: -item[1]):
            print(f"{count:6} {name}")
    print(f"{len(lines)} modules (target {MAX_MODULES}), {sum(lines.values()):,} lines (target {MAX_LINES:,})")


if __name__ == "__main__":
    main()
