"""The compared peers that are installed."""

from importlib import import_module
from importlib.util import find_spec
from typing import Final

from benchmarks.variants.variant import Variant

__all__ = ["Variant", "installed"]

_MODULES: Final = {
    "sdk_server": "mcp",
    "roundtrip_server": "roundtrip",
    "recording_server": "roundtrip",
    "lowlevel_server": "mcp",
    "fastmcp_server": "fastmcp",
}
"""Each peer's module, and the package that it needs."""


def installed() -> tuple[Variant, ...]:
    """Import the peers whose packages are installed. A broken installation raises."""
    return tuple(
        import_module(f"{__name__}.{module}").VARIANT
        for module, package in _MODULES.items()
        if find_spec(package) is not None
    )
