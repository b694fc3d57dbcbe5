"""A server that hosts start, and what `roundtrip host-config` prints about it."""

from typing import Final

import pytest

from roundtrip.cli import main

__all__ = ["SHOP", "URL", "printed"]

URL: Final = "http://127.0.0.1:8000/mcp"

SHOP: Final = '''\
import os
from pathlib import Path
from roundtrip import Context, Server

print("not for the host")
server = Server("my shop!")

@server.tool
async def order(title: str, ctx: Context) -> str:
    """Order a book."""
    copies = await ctx.ask("copies", f"How many of {title}?", int)
    return f"{copies} of {title} in {Path.cwd().name}, own key: {server.identity().own_key}"
'''


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, str]:
    """Return what the command prints, and what it says on standard error."""
    capsys.readouterr()
    assert main(["host-config", *arguments]) == 0
    out, told = capsys.readouterr()
    return out, told
