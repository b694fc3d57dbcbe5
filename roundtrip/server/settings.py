"""Make the parts of a server from its arguments and the environment: keys, codecs, limits, tracers and the bus."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

from mcp.server.context import ServerRequestContext
from mcp.server.request_state import (
    AESGCMRequestStateCodec,
    RequestStateCodec,
    RequestStateSecurity,
    authenticated_principal,
)
from mcp.server.subscriptions import InMemorySubscriptionBus, SubscriptionBus

from roundtrip.errors import RejectionReason, TokenRejected
from roundtrip.legs.parts import Effects, Parts
from roundtrip.machine.journal import Limits, from_text, to_text
from roundtrip.machine.journal_bytes import MAX_JOURNAL_BYTES
from roundtrip.on_demand import load_on_use
from roundtrip.system import SYSTEM, System
from roundtrip.tokens.protection import Protection
from roundtrip.tokens.token import MAX_TOKEN_BYTES, KeyRing, TokenCodec
from roundtrip.trace.writing.tracers import tracers_of

if TYPE_CHECKING:
    from roundtrip.ledger import contract
    from roundtrip.server import key_files
    from roundtrip.trace.writing.tracers import Trace
else:
    load_on_use(globals(), "roundtrip.ledger.contract", "roundtrip.server.key_files")

Principal = Callable[[ServerRequestContext[Any, Any]], str | None]
Keys = Sequence[bytes | bytearray | str]

_UNNAMED: Final = "mcp-server"
"""The SDK's name for a server without a name."""

_TTL_SECONDS: Final = 600.0
_MAX_AGE_SECONDS: Final = 3600.0

_OWN_KEY_BYTES: Final = 32
_HINT_CHARS: Final = 5
"""The characters of base64 that hold only the four bytes by which a token of the SDK names its key."""


class PartsOptions(TypedDict, total=False):
    """Options of a server for the parts that every leg uses; the docstring of `Server` says more."""

    keys: Keys | None
    """Secrets of at least 32 bytes, newest first, the same on every instance. By default those of ROUNDTRIP_KEYS or
    ROUNDTRIP_KEY_FILE; without either, only this process can resume its calls."""
    ttl: float | None
    """Seconds a client may take over one leg's questions. The default is 600."""
    max_age: float | None
    """Seconds after which a call cannot be resumed. The default is 3600."""
    encrypt: bool
    """True to encrypt whole tokens."""
    principal: Principal | Literal[False] | None
    """Returns the owner of a token, given the request's context; False binds tokens to no one."""
    audience: str | None
    """The service that tokens are for. By default the server's name."""
    seal_keys: Keys | None
    """With `request_state_security=` of the server, the keys that seal values which the server computed."""
    trace: Trace
    """The place to record calls, as `Server(trace=...)` takes it. By default the one that ROUNDTRIP_TRACE names."""
    ledger: contract.Ledger | None
    """Keeps the results of tools that run once. By default in the memory of this process."""
    max_token_bytes: int
    """A longer token is neither made nor accepted."""
    max_journal_bytes: int
    """The most bytes that a call may remember."""
    system: System
    """The clocks, randomness and sleep to use."""


def parts_of(
    name: str | None,
    *,
    given: RequestStateSecurity | None,
    bus: SubscriptionBus | None,
    ttl: float | None = None,
    max_age: float | None = None,
    trace: Trace = None,
    ledger: contract.Ledger | None = None,
    system: System = SYSTEM,
    **protection: Any,
) -> Parts:
    """Make the parts of a server from its arguments; `protection` are those of `protect`.

    Raises:
        ValueError: A key is too short, or the arguments contradict each other.
        TypeError: The ledger is none.
    """
    if ledger is not None:
        _check_ledger(ledger)
    limits = limits_of(given, ttl=ttl, max_age=max_age)
    made = protect(name, given=given, ttl=limits.ttl, environment=os.environ, system=system, **protection)
    tracers = tracers_of(trace, environment=os.environ, key=made.trace_key)
    bus = bus if bus is not None else InMemorySubscriptionBus()
    return Parts(made, Effects(ledger, tracers, bus, system=system), limits, system)


def _check_ledger(given: object) -> None:
    if not isinstance(given, contract.Ledger):
        raise TypeError(f"ledger= must be a ledger, such as SqliteLedger('calls.db'), got {type(given).__name__}")


def limits_of(given: RequestStateSecurity | None, *, ttl: float | None, max_age: float | None) -> Limits:
    """Return the time limits of a server's calls; the SDK's policy may bring one.

    Raises:
        ValueError: A time is invalid, or two of them contradict each other.
    """
    if given is None:
        return Limits(
            ttl=_TTL_SECONDS if ttl is None else ttl, max_age=_MAX_AGE_SECONDS if max_age is None else max_age
        )
    if ttl is not None and ttl != given.ttl:
        raise ValueError(
            f"ttl= must be left out with request_state_security=, which has its own, got ttl={ttl} and {given.ttl}; "
            "set it there: RequestStateSecurity(..., ttl=...)"
        )
    return Limits(ttl=given.ttl, max_age=max(_MAX_AGE_SECONDS, given.ttl) if max_age is None else max_age)


def protect(
    name: str | None,
    *,
    ttl: float,
    environment: Mapping[str, str],
    system: System,
    given: RequestStateSecurity | None = None,
    keys: Keys | None = None,
    encrypt: bool = False,
    principal: Principal | Literal[False] | None = None,
    audience: str | None = None,
    seal_keys: Keys | None = None,
    max_token_bytes: int = MAX_TOKEN_BYTES,
    max_journal_bytes: int = MAX_JOURNAL_BYTES,
) -> Protection:
    """Build the protection from a server's arguments. Keys come from them, else from the environment, else are random.

    Raises:
        ValueError: A key is too short, or the arguments contradict each other.
    """
    if given is not None:
        if keys is not None or encrypt or principal is not None or audience is not None:
            raise ValueError(
                "request_state_security= brings its own keys, principal and audience; give it alone (with "
                "seal_keys= for values that the server computes), or leave it out and use keys="
            )
        ring = KeyRing(seal_keys) if seal_keys is not None else None
        policy = RequestStateSecurity(
            # The SDK's own codec takes any bytes.
            codec=given.codec if isinstance(given.codec, AESGCMRequestStateCodec) else _TextCodec(given.codec),
            ttl=given.ttl,
            bind_principal=given.bind_principal,
            audience=given.audience,
        )
        protection = Protection.of(ring, policy, None, max_journal_bytes=max_journal_bytes, entropy=system.entropy)
        return protection._replace(hints=(*_codec_hint(given.codec), *protection.hints))
    if seal_keys is not None:
        raise ValueError("seal_keys= must be left out without request_state_security=; keys= are used for sealing too")
    found = _keys_of(environment) if keys is None else None
    if not name and audience is None:
        if keys is not None or found is not None:
            given_as = "keys=" if found is None else f"keys from {found.variable}"
            raise ValueError(
                f"a server with {given_as} must have a name, because each token names its service; write "
                'Server("bookshop", ...), or give audience='
            )
        # The SDK requires an audience in every policy. Any text will do: this server's key never leaves the process.
        audience = _UNNAMED
    ring = (
        _ring_of(found)
        if found is not None
        else KeyRing(keys if keys is not None else [system.entropy(_OWN_KEY_BYTES)])
    )
    tokens = TokenCodec(ring, entropy=system.entropy, encrypt=encrypt, max_token_bytes=max_token_bytes)
    if principal is not None and principal is not False and not callable(principal):
        raise TypeError(f"principal= must be a function of the request's context, or False, got {principal!r}")
    bind = None if principal is False else (principal or authenticated_principal)
    policy = RequestStateSecurity(codec=tokens, ttl=ttl, bind_principal=bind, audience=audience)
    protection = Protection.of(ring, policy, tokens, max_journal_bytes=max_journal_bytes, entropy=system.entropy)
    return protection._replace(own_key=keys is None and found is None)


class _TextCodec:
    """Adapter for an author's codec, which may expect text, as the SDK's payload is JSON: it gets base64url."""

    def __init__(self, codec: RequestStateCodec) -> None:
        self._codec = codec

    def seal(self, payload: bytes) -> str:
        """Return the codec's token for a payload."""
        return self._codec.seal(to_text(payload).encode())

    def unseal(self, token: str) -> bytes:
        """Return the payload of a token.

        Raises:
            TokenRejected: The codec accepts a token whose payload this server did not write.
        """
        text: Any = self._codec.unseal(token)
        try:
            return from_text(text.decode("ascii"))
        except (ValueError, AttributeError) as error:
            raise TokenRejected(RejectionReason.MALFORMED) from error


def _keys_of(environment: Mapping[str, str]) -> key_files.EnvironmentKeys | None:
    if "ROUNDTRIP_KEYS" not in environment and "ROUNDTRIP_KEY_FILE" not in environment:
        return None
    return key_files.keys_of(environment)


def _ring_of(found: key_files.EnvironmentKeys) -> KeyRing:
    try:
        return KeyRing(found.keys)
    except ValueError as error:
        raise ValueError(f"{found.variable}: {error}") from error


def _codec_hint(codec: RequestStateCodec) -> tuple[str, ...]:
    """Return the name of the key in tokens of the SDK's codec. Random keys of two processes have different names."""
    if not isinstance(codec, AESGCMRequestStateCodec):
        return ()
    return (codec.seal(b"").partition(".")[2][:_HINT_CHARS],)
