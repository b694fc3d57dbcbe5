"""A pytest plugin that calls `install` on each FastMCP server, if ROUNDTRIP_FASTMCP_INSTALL is set.

It is loaded by the tests of FastMCP, in an environment of theirs, beside the plugin that reports each outcome.
"""

import functools
import os
from typing import Any

from fastmcp import FastMCP


def _install_everywhere() -> None:
    from roundtrip.adapters import fastmcp_names
    from roundtrip.fastmcp import install

    # `install` learns FastMCP's names from new servers, which must be plain ones.
    fastmcp_names.policy_of(FastMCP("plain"))
    make: Any = FastMCP.__init__

    @functools.wraps(make)
    def make_installed(self: Any, *args: Any, **options: Any) -> None:
        make(self, *args, **options)
        install(self)

    setattr(FastMCP, "__init__", make_installed)  # noqa: B010 - to type checkers it is a method


if os.environ.get("ROUNDTRIP_FASTMCP_INSTALL"):
    _install_everywhere()
