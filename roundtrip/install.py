"""Let the tools of servers ask that are of the SDK's own classes, without a change of class.

```python
server = MCPServer("shop")
install(server, keys=[os.environ["SHOP_KEY"]])
```

The low-level `Server` has no tools of functions: `bind` makes its handlers.

```python
tools = bind(book, cancel)
server = Server("shop", on_list_tools=tools.list_tools, on_call_tool=tools)
install(server, keys=[os.environ["SHOP_KEY"]])
```
"""

from collections.abc import Callable
from typing import Any

from mcp.server import MCPServer
from mcp.server.lowlevel import Server as LowLevelServer
from typing_extensions import Unpack

from roundtrip.adapters.finding import is_fastmcp, low_level
from roundtrip.adapters.installation import InstallOptions
from roundtrip.adapters.sdk_classes import BoundTools, install_in_low_level, install_in_mcpserver
from roundtrip.server.server import Server

__all__ = ["bind", "install"]


def install(server: MCPServer[Any] | LowLevelServer[Any], **options: Unpack[InstallOptions]) -> None:
    """Let the tools, prompts and resource templates of a server ask that are registered from now on.

    Functions that have none of roundtrip's markers, contexts and options are left as they are. A server's own
    `request_state_security=` is replaced; give it, or the keys, here.

    Args:
        server: An `MCPServer`, or a low-level `Server` whose tools `bind` made.
        **options: Those of `roundtrip.Server` with the same names: keys, ttl, max_age, encrypt, principal, audience,
            request_state_security, seal_keys, build, trace, ledger, pages, channels, approvals (these three not for the
            low-level server), no_empty_rounds, max_token_bytes, max_journal_bytes
            and system.

    Raises:
        TypeError: It is a server of another class, or an option does not exist.
        ValueError: It has roundtrip already, or the options contradict each other.
        InvalidSignature: A function with roundtrip's markers was registered before. Or pages= or channels= has to
            store calls, and the ledger cannot.
        KeysMissing: They have to store calls where other processes can read them, and the server has no keys.
    """
    if isinstance(server, Server):
        raise TypeError("install() must be given a server without roundtrip, got a roundtrip.Server; leave it out")
    if isinstance(server, MCPServer):
        install_in_mcpserver(server, low_level(server), options)
    elif isinstance(server, LowLevelServer):  # pyright: ignore[reportUnnecessaryIsInstance]
        install_in_low_level(server, options)
    else:
        kind = type(server)
        cure = "; use install() of roundtrip.fastmcp" if is_fastmcp(server) else ""
        raise TypeError(
            f"install() must be given an MCPServer or a low-level Server of the SDK, got {kind.__module__}."
            f"{kind.__name__}{cure}"
        )


def bind(*functions: Callable[..., Any]) -> BoundTools:
    """Make the handlers of `tools/call` and `tools/list` for a low-level server, whose tools these functions are.

    Options come by the standalone `@tool`. A handler of your own may call this one for some names:
    `await tools(ctx, params)`.

    Args:
        *functions: The functions.

    Raises:
        InvalidSignature: One cannot work.
    """
    return BoundTools(functions)
