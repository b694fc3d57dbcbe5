"""Questions in tools on servers of the SDK's own classes.

```python
server = MCPServer("shop")
install(server, keys=[os.environ["SHOP_KEY"]])
```

The low-level `Server` does not build tools from functions. `bind` creates the handlers that do:

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

from roundtrip.adapters.finding import is_fastmcp, low_level, signal
from roundtrip.adapters.installation import InstallOptions
from roundtrip.adapters.sdk_classes import BoundTools, install_in_low_level, install_in_mcpserver
from roundtrip.server.server import Server

__all__ = ["bind", "install", "signal"]


def install(server: MCPServer[Any] | LowLevelServer[Any], **options: Unpack[InstallOptions]) -> None:
    """Enable questions in tools, prompts and resource templates that are registered after this call.

    Functions that use none of roundtrip's markers, contexts and options are not changed. The server's own
    `request_state_security=` is replaced; pass the policy, or keys, to `install`.

    Args:
        server: An `MCPServer`, or a low-level `Server` whose handlers come from `bind`.
        **options: Options of `roundtrip.Server` with the same names: keys, ttl, max_age, encrypt, principal, audience,
            request_state_security, seal_keys, build, trace, ledger, no_empty_rounds, max_token_bytes,
            max_journal_bytes, system, run_tasks and task_engine. An `MCPServer` also takes pages, channels,
            approvals and consent.

    Raises:
        TypeError: The server has another class, or an option does not exist.
        ValueError: roundtrip is already installed on this server, or the options contradict each other.
        InvalidSignature: A function with roundtrip's markers is already registered. This error is also raised if pages=
            or channels= must store calls, and the ledger cannot store calls.
        KeysMissing: pages= or channels= must store calls where other processes can read them, and the server has no
            keys.
    """
    if isinstance(server, Server):
        raise TypeError("install() must not be given a roundtrip.Server, which can ask already; leave install() out")
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
    """Create a low-level server's handlers for `tools/call` and `tools/list` from its tools' functions.

    Set options with the standalone `@tool`. Your own handler may call the returned handler for some tool names: `await
    tools(ctx, params)`.

    Args:
        *functions: The tools' functions.

    Raises:
        InvalidSignature: A function cannot work as a tool.
    """
    return BoundTools(functions)
