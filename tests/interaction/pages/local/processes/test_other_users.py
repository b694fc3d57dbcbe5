"""Programs of other users of the machine, which cannot open its pages."""

import os
import sys

import anyio
import pytest

from tests.interaction.pages.local.desktop import ONE, Desktop, on_desk, tab

pytestmark = pytest.mark.anyio


@pytest.mark.skipif(sys.platform != "linux" or os.getuid() != 0, reason="only root can start programs of others")
async def test_program_of_another_user_is_turned_away() -> None:
    desktop = Desktop()
    async with on_desk(desktop) as client, tab() as one:
        await client.call_tool("many", ONE)
        address = await desktop.address()
        fetch = "import sys, urllib.request as web; print(web.urlopen(sys.argv[1], timeout=60).read())"
        thief = await anyio.run_process(["/usr/bin/env", "python3", "-c", fetch, address], check=False, user=65534)
        assert b"HTTP Error 403" in thief.stderr
        assert b"Number" not in thief.stdout
        # It has not used the address.
        assert (await one.open(address)).heading == "Number 0?"
