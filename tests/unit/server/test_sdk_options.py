"""The keywords that `Server` passes on are those of the SDK's own constructor."""

import inspect
from typing import get_type_hints

from mcp.server import MCPServer

from roundtrip import Server
from roundtrip.server.server import SdkOptions

SDK = inspect.signature(MCPServer.__init__).parameters
OWN = inspect.signature(Server.__init__).parameters


def test_every_keyword_of_the_sdk_is_accepted_once() -> None:
    """A new keyword of the SDK goes into `SdkOptions`, or into the signature of `Server`."""
    options = set(SdkOptions.__annotations__)
    assert options == set(SDK) - set(OWN)
    assert options.isdisjoint(OWN)


def test_keywords_have_the_types_of_the_sdk() -> None:
    theirs = get_type_hints(MCPServer.__init__)
    for name, type_ in get_type_hints(SdkOptions).items():
        assert theirs[name] == type_, name


def test_arguments_of_both_have_the_positions_and_defaults_of_the_sdk() -> None:
    for name, parameter in SDK.items():
        if name in OWN:
            assert (OWN[name].kind, OWN[name].default) == (parameter.kind, parameter.default), name
    positional = [name for name, one in SDK.items() if one.kind is one.POSITIONAL_OR_KEYWORD]
    assert list(OWN)[: len(positional)] == positional
