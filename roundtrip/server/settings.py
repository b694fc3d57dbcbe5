"""Server settings: the keys, codecs, limits, tracers and bus that arguments and the environment select."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, cast

from mcp.server.context import ServerRequestContext
from mcp.server.request_state import (
    AESGCMRequestStateCodec,
    RequestStateCodec,
    RequestStateSecurity,
    authenticated_principal,
)
from mcp.server.subscriptions import InMemorySubscriptionBus, SubscriptionBus
from typing_extensions import Unpack

from roundtrip.errors import RejectionReason, TokenRejected
from roundtrip.legs.parts import Effects, Parts
from roundtrip.machine.journal import Limits, from_text, to_text
from roundtrip.machine.journal_bytes import MAX_JOURNAL_BYTES
from roundtrip.on_demand import load_on_use
from roundtrip.system import SYSTEM, System
from roundtrip.tokens.binding import DEFAULT_AUDIENCE
from roundtrip.tokens.protection import Protection
from roundtrip.tokens.token import MAX_TOKEN_BYTES, KeyRing, TokenCodec
from roundtrip.trace.writing.tracers import tracers_of

if TYPE_CHECKING:
    from roundtrip.approvals.markers import Approvals
    from roundtrip.channels.server_channels import ChannelName
    from roundtrip.ledger import contract
    from roundtrip.pages.settings import Pages
    from roundtrip.server import key_files
    from roundtrip.tools.consent_rules import ConsentRule
    from roundtrip.trace.writing.tracers import Trace

load_on_use(globals(), "roundtrip.ledger.contract", "roundtrip.server.key_files")

Principal = Callable[[ServerRequestContext[Any, Any]], str | None]
Keys = Sequence[bytes | bytearray | str]

_TTL_SECONDS: Final = 600.0
_MAX_AGE_SECONDS: Final = 3600.0

_OWN_KEY_BYTES: Final = 32
_KEY_VARIABLES: Final = frozenset({"ROUNDTRIP_KEYS", "ROUNDTRIP_KEY_FILE"})
_HINT_CHARS: Final = 5
"""The length of a key hint. The first base64 characters of an SDK token depend only on its key."""


class PartsOptions(TypedDict, total=False):
    """Server options for the parts that every leg uses; see the docstring of `Server` for details."""

    keys: Keys | None
    """Secrets of at least 32 bytes, the same on every instance; the first one signs. The default comes from
    ROUNDTRIP_KEYS or ROUNDTRIP_KEY_FILE. If neither is set, only this process can resume its calls.
    """
    ttl: float | None
    """Seconds that a client may take to answer one leg's questions. The default is 600."""
    max_age: float | None
    """Seconds after which a call can no longer be resumed. The default is 3600."""
    encrypt: bool
    """True to encrypt whole tokens."""
    principal: Principal | Literal[False] | None
    """A function that takes the request's context and returns the token's owner; with False, tokens have no owner."""
    audience: str | None
    """The service that accepts the tokens. The default is the server's name."""
    seal_keys: Keys | None
    """Keys that seal values computed by the server, for a server with `request_state_security=`."""
    trace: Trace
    """Where to record calls; see `Server(trace=...)`. The default is the transcript that ROUNDTRIP_TRACE names."""
    ledger: contract.Ledger | None
    """Stores the results of tools that run once. The default ledger is in this process's memory."""
    max_token_bytes: int
    """The maximum token size. The server neither makes nor accepts a longer token."""
    max_journal_bytes: int
    """The maximum number of bytes that a call may remember."""
    no_empty_rounds: Iterable[str]
    """Names of clients that cannot handle a round without questions."""
    system: System
    """The clocks, the randomness and the sleep function to use."""


class StoringOptions(TypedDict, total=False):
    """Server options that require stored calls; see the docstring of `Server` for details."""

    pages: Pages | None
    """`Pages(...)`: pages on which users answer if their clients cannot show a form."""
    channels: Iterable[ChannelName] | None
    """How questions can reach users. The default is `form`, then the channels that `pages` serves."""
    approvals: Approvals | None
    """`Approvals(...)`: an inbox in which a group's members decide other users' calls; see `Approve`."""


class ConsentOptions(TypedDict, total=False):
    """Server options about consent."""

    consent: ConsentRule | Literal[False] | None
    """Which tools ask their users before they run, although their authors wrote no confirmation. By default no tool
    asks.
    """
    trust_hints: bool
    """True to believe the hints of tools from other servers, such as proxied tools."""


def wants_stored_calls(options: StoringOptions) -> list[str]:
    """Return the names of the given options that need stored calls."""
    return [name for name in StoringOptions.__annotations__ if options.get(name) is not None]


def parts_of(
    name: str | None,
    *,
    given: RequestStateSecurity | None,
    bus: SubscriptionBus | None,
    **options: Unpack[PartsOptions],
) -> Parts:
    """Make a server's parts from its arguments.

    Raises:
        ValueError: A key is too short, or the arguments contradict each other.
        TypeError: `ledger=` is not a ledger, `principal=` is not a function, or `no_empty_rounds=` is a string.
    """
    no_empty_rounds = options.get("no_empty_rounds", ())
    if isinstance(no_empty_rounds, str):
        raise TypeError(f"no_empty_rounds must be a list of client names, got {no_empty_rounds!r}")
    ledger, system = options.get("ledger"), options.get("system", SYSTEM)
    if ledger is not None and not isinstance(cast("object", ledger), contract.Ledger):
        raise TypeError(f"ledger= must be a ledger, such as SqliteLedger('calls.db'), got {type(ledger).__name__}")
    limits = _limits_of(given, options.get("ttl"), options.get("max_age"))
    if given is not None:
        protection = _protect_by_policy(given, options, system)
    else:
        protection = _protect_by_keys(name, limits.ttl, options, system)
    tracers = tracers_of(options.get("trace"), environment=os.environ, key=protection.trace_key)
    bus = bus if bus is not None else InMemorySubscriptionBus()
    return Parts(protection, Effects(ledger, tracers, bus, system=system), limits, system, frozenset(no_empty_rounds))


def _limits_of(given: RequestStateSecurity | None, ttl: float | None, max_age: float | None) -> Limits:
    """Return the time limits for a server's calls. The SDK's policy may set the `ttl`.

    Raises:
        ValueError: A time is invalid, or two times contradict each other.
    """
    if given is None:
        return Limits(
            ttl=_TTL_SECONDS if ttl is None else ttl, max_age=_MAX_AGE_SECONDS if max_age is None else max_age
        )
    if ttl is not None and ttl != given.ttl:
        raise ValueError(
            f"ttl= must equal the ttl of request_state_security=, got {ttl} and {given.ttl}; set it only in "
            "RequestStateSecurity(..., ttl=...)"
        )
    return Limits(ttl=given.ttl, max_age=max(_MAX_AGE_SECONDS, given.ttl) if max_age is None else max_age)


def _protect_by_policy(given: RequestStateSecurity, options: PartsOptions, system: System) -> Protection:
    """Return the protection for a server with the SDK's policy, which includes a codec."""
    conflicting = ("keys", "principal", "audience")
    if options.get("encrypt") or any(options.get(name) is not None for name in conflicting):
        raise ValueError(
            "request_state_security= must not be combined with encrypt=, keys=, principal= or audience=, because the "
            "policy decides these; remove them, or replace request_state_security= with keys="
        )
    seal_keys, codec, hint = options.get("seal_keys"), given.codec, ()
    if isinstance(codec, AESGCMRequestStateCodec):
        # This codec also seals empty data. The hint depends only on the codec's key, so different keys have different
        # hints.
        hint = (codec.seal(b"").partition(".")[2][:_HINT_CHARS],)
    else:
        codec = _TextCodec(codec)
    policy = RequestStateSecurity(
        codec=codec, ttl=given.ttl, bind_principal=given.bind_principal, audience=given.audience
    )
    ring = KeyRing(seal_keys) if seal_keys is not None else None
    max_bytes = options.get("max_journal_bytes", MAX_JOURNAL_BYTES)
    protection = Protection.of(ring, policy, None, max_bytes=max_bytes, entropy=system.entropy)
    return protection._replace(hints=(*hint, *protection.hints))


def _protect_by_keys(name: str | None, ttl: float, options: PartsOptions, system: System) -> Protection:
    """Return the protection for a server with its own keys. The keys come from `keys=` or from the environment. If
    neither is set, the key is random.
    """
    keys, audience, principal = options.get("keys"), options.get("audience"), options.get("principal")
    if options.get("seal_keys") is not None:
        raise ValueError(
            "seal_keys= needs request_state_security=; remove seal_keys=, because keys= already seals computed values"
        )
    found = key_files.keys_of(os.environ) if keys is None and _KEY_VARIABLES & os.environ.keys() else None
    if not name and audience is None:
        if keys is not None or found is not None:
            given_as = "keys=" if found is None else f"keys from {found.variable}"
            raise ValueError(
                f"a server with {given_as} must have a name, because each token names its service; write "
                'Server("bookshop", ...), or give audience='
            )
        # The SDK requires an audience in every policy. Any text works here, because this server's key never leaves the
        # process.
        audience = DEFAULT_AUDIENCE
    if found is not None:
        keys = found.keys
    try:
        ring = KeyRing(keys if keys is not None else [system.entropy(_OWN_KEY_BYTES)])
    except ValueError as error:
        if found is None:
            raise
        raise ValueError(f"{found.variable}: {error}") from error
    tokens = TokenCodec(
        ring,
        entropy=system.entropy,
        encrypt=options.get("encrypt", False),
        max_token_bytes=options.get("max_token_bytes", MAX_TOKEN_BYTES),
    )
    if principal is not None and principal is not False and not callable(principal):
        raise TypeError(f"principal= must be a function of the request's context, or False, got {principal!r}")
    bind = None if principal is False else (principal or authenticated_principal)
    policy = RequestStateSecurity(codec=tokens, ttl=ttl, bind_principal=bind, audience=audience)
    max_bytes = options.get("max_journal_bytes", MAX_JOURNAL_BYTES)
    protection = Protection.of(ring, policy, tokens, max_bytes=max_bytes, entropy=system.entropy)
    return protection._replace(own_key=keys is None)


class _TextCodec:
    """Adapter that passes payloads to an author's codec as base64url text.

    The SDK's payloads are JSON, so an author's codec may support only text.
    """

    def __init__(self, codec: RequestStateCodec) -> None:
        self._codec = codec

    def seal(self, payload: bytes) -> str:
        """Return the codec's token for a payload."""
        return self._codec.seal(to_text(payload).encode())

    def unseal(self, token: str) -> bytes:
        """Return the payload of a token.

        Raises:
            TokenRejected: The codec accepted the token, but this server did not write its payload.
        """
        text: Any = self._codec.unseal(token)
        try:
            return from_text(text.decode("ascii"))
        except (ValueError, AttributeError) as error:
            raise TokenRejected(RejectionReason.MALFORMED) from error
