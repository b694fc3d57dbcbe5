"""Intents: which calls of a tool mean the same, so that the tool's body runs once for all of them."""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import inspect
import json
import math
import string
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, Literal, NamedTuple, cast, get_args, get_origin

from mcp.server.mcpserver import Context as SdkContext
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel, Secret, SecretBytes, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError, to_jsonable_python

from roundtrip.errors import InvalidSignature
from roundtrip.ledger.contract import INTENT_PREFIX
from roundtrip.legs.functions import FunctionSignature
from roundtrip.resolvers.signatures import hints_of, is_async
from roundtrip.system import SYSTEM
from roundtrip.tools.options import FromMeta, OnFailure, Scope, ToolSpec, seconds_of

_KEEP_SECONDS: Final = 24 * 3600.0
_DECLINED_SECONDS: Final = 300.0
_MAX_FIELD_CHARS: Final = 1024
_DIGEST_BYTES: Final = 16
_SECRETS: Final = (Secret, SecretStr, SecretBytes)
_PROCESS_KEY: Final = SYSTEM.entropy(32)
"""The key for digests of secret arguments, if the server has no keys."""


class CallIntent(NamedTuple):
    """One call's intent: its key in the ledger, and the digest of all the call's arguments."""

    key: str
    digest: str
    former_digests: Sequence[str] = ()
    """The digests that replaced keys make. Only secret arguments need keys."""

    @property
    def public(self) -> str:
        """Return a key for other systems, which does not show the key in the ledger."""
        return _digest(f"public {self.key}")


class IntentPolicy(NamedTuple):
    """How a tool's calls are identified (`once_per=`), and what becomes of their results."""

    tool: str
    kind: Literal["template", "function", "meta"]
    fields: tuple[str, ...] = ()
    """The arguments that a template names."""
    function: Callable[..., Any] | None = None
    meta_key: str = ""
    context: str | None = None
    """The function's parameter that receives the context."""
    defaults: Mapping[str, Any] = {}
    """The defaults of the tool's arguments. Some hosts leave out arguments that the client left out."""
    keep: float = _KEEP_SECONDS
    declined_for: float = _DECLINED_SECONDS
    scope: Scope = "caller"
    on_failure: OnFailure = "keep"

    @classmethod
    def of(cls, spec: ToolSpec, signature: FunctionSignature, arguments: Mapping[str, str]) -> IntentPolicy:
        """Return the policy from a tool's options.

        Raises:
            InvalidSignature: An option has an invalid value, or an argument cannot identify an intent.
        """
        owner, given = signature.owner, spec.get("once_per")
        scope, on_failure = spec.get("scope"), spec.get("on_failure")
        if scope not in (None, *get_args(Scope)):
            raise InvalidSignature(f"{owner}: scope must be 'caller' or 'service', got {scope!r}")
        if on_failure not in (None, *get_args(OnFailure)):
            raise InvalidSignature(f"{owner}: on_failure must be 'keep' or 'rerun', got {on_failure!r}")
        policy = cls(
            signature.name,
            "meta",
            defaults=_defaults_of(signature.fn),
            keep=seconds_of(spec, "keep", _KEEP_SECONDS, owner),
            declined_for=seconds_of(spec, "declined_for", _DECLINED_SECONDS, owner),
            scope=scope or "caller",
            on_failure=on_failure or "keep",
        )
        if isinstance(given, FromMeta):
            return policy._replace(meta_key=given.key)
        if isinstance(given, str):
            return policy._replace(kind="template", fields=_fields_of(given, signature, arguments))
        if not callable(given) or inspect.isclass(given):
            raise InvalidSignature(
                f"{owner}: once_per must be a template such as '{{order_id}}', a function, or from_meta(key), got "
                f"{given!r}"
            )
        context = _check_function(given, signature, arguments)
        return policy._replace(kind="function", function=given, context=context)

    @property
    def is_known_later(self) -> bool:
        """Return True if the intent can be found without the client's request."""
        return self.kind != "meta" and self.context is None

    def intent(
        self,
        arguments: Mapping[str, Any],
        meta: object,
        make_context: Callable[[], Any],
        *,
        owners: list[str | None],
        secret_keys: Sequence[bytes] = (),
    ) -> CallIntent | None:
        """Return a call's intent; None if nothing identifies the call.

        Args:
            arguments: The call's arguments, in the form that the body receives.
            meta: The request's `_meta`.
            make_context: Makes the context for the author's function.
            owners: The service's name, and the caller's if the intent belongs to the caller.
            secret_keys: The keys for digests of secret arguments, newest first.

        Raises:
            ToolError: A value is too long, or it has no JSON form.
        """
        arguments = {**self.defaults, **arguments}
        named = self._named(arguments, meta, make_context)
        if named is None:
            return None
        key = _digest(json.dumps([*owners, self.tool, self.scope, self.kind, named], sort_keys=True))
        try:
            plain = (_plain(arguments, secret_key=each) for each in secret_keys or (_PROCESS_KEY,))
            digest, *former = dict.fromkeys(_digest(json.dumps([key, each], sort_keys=True)) for each in plain)
        except (PydanticSerializationError, ValueError, RecursionError) as error:
            raise ToolError("the arguments have no JSON form, so this call cannot be compared with others") from error
        return CallIntent(f"{INTENT_PREFIX}{key}", digest, former)

    def _named(self, arguments: Mapping[str, Any], meta: object, make_context: Callable[[], Any]) -> Any:
        """Return the values that identify the call, in JSON form; None if there are none."""
        if self.kind == "template":
            return {name: _short(_plain_or_error(arguments[name], name), name) for name in self.fields}
        if self.function is not None:
            taken = inspect.signature(self.function).parameters
            values = {name: arguments[name] for name in taken if name in arguments}
            if self.context is not None:
                values[self.context] = make_context()
            found = self.function(**values)
            return None if found is None else [_short(_plain_or_error(found, "once_per"), "once_per")]
        sent: object = cast("Mapping[str, Any]", meta).get(self.meta_key) if isinstance(meta, Mapping) else None
        if sent is None:
            return None
        if not isinstance(sent, str) or not sent:
            raise ToolError(f"_meta[{self.meta_key!r}] must be a text that is not empty")
        return [self.meta_key, _short(_plain(sent), f"_meta[{self.meta_key!r}]")]


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()


def _fields_of(template: str, signature: FunctionSignature, arguments: Mapping[str, str]) -> tuple[str, ...]:
    """Return the arguments that a template names, in the order of their first use."""
    owner = signature.owner
    try:
        parts = [part for part in string.Formatter().parse(template) if part[1] is not None]
    except ValueError as error:
        raise InvalidSignature(f"{owner}: once_per={template!r} is not a format string ({error})") from error
    if not parts:
        raise InvalidSignature(
            f"{owner}: once_per={template!r} names no argument, so all calls would have the same intent; write an "
            "argument in braces, as in once_per='{order_id}'"
        )
    hints, parameters = hints_of(signature.fn), inspect.signature(signature.fn).parameters
    names: dict[str, None] = {}
    for _, field, format_spec, conversion in parts:
        name = arguments.get(field or "")
        if format_spec or conversion:
            raise InvalidSignature(
                f"{owner}: once_per={template!r} must name {field!r} without a format, as in once_per='{{{field}}}'; "
                "to change a value, give once_per= a function of the arguments"
            )
        if name is None:
            known = ", ".join(arguments) or "none"
            raise InvalidSignature(
                f"{owner}: once_per={template!r} must name only arguments of the tool (its arguments: {known}), got "
                f"{field!r}; for anything else, give once_per= a function of the arguments"
            )
        if _mentions_secret(hints.get(name)):
            raise InvalidSignature(f"{owner}: once_per={template!r} names {field!r}, which is secret; name others")
        default = parameters[name].default if name in parameters else None
        if _makes_default(default) or _makes_default(hints.get(name)):
            raise InvalidSignature(
                f"{owner}: once_per={template!r} names {field!r}, whose default is made anew for each call"
            )
        names[name] = None
    return tuple(names)


def _check_function(
    function: Callable[..., Any], signature: FunctionSignature, arguments: Mapping[str, str]
) -> str | None:
    """Check the parameters of the author's function, and return the parameter that receives the context."""
    owner, context = signature.owner, None
    if is_async(function):
        raise InvalidSignature(f"{owner}: the function for once_per= must not be async")
    hints = hints_of(function)
    for name, parameter in inspect.signature(function).parameters.items():
        hint = hints.get(name)
        if isinstance(hint, type) and issubclass(hint, SdkContext):
            context = name
        elif arguments.get(name) != name and parameter.default is parameter.empty:
            raise InvalidSignature(
                f"{owner}: the function for once_per= takes {name!r}, which is not an argument of the tool; its "
                "parameters must be arguments of the tool, or a Context"
            )
    return context


def _defaults_of(fn: Callable[..., Any]) -> dict[str, Any]:
    defaults: dict[str, Any] = {}
    for name, parameter in inspect.signature(fn).parameters.items():
        given: object = parameter.default
        if isinstance(given, FieldInfo):
            given = parameter.empty if given.is_required() or given.default_factory is not None else given.default
        if given is not parameter.empty:
            defaults[name] = given
    return defaults


def _mentions_secret(hint: Any) -> bool:
    kind = get_origin(hint) or hint
    return (isinstance(kind, type) and issubclass(kind, _SECRETS)) or any(map(_mentions_secret, get_args(hint)))


def _makes_default(value: Any) -> bool:
    if isinstance(value, FieldInfo):
        return value.default_factory is not None
    return any(isinstance(part, FieldInfo) and part.default_factory is not None for part in get_args(value))


def _plain_or_error(value: Any, name: str) -> Any:
    try:
        plain = _plain(value)
        json.dumps(plain)
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        raise ToolError(f"{name} has no JSON form that can identify this call") from error
    return plain


def _short(plain: Any, name: str) -> Any:
    if len(json.dumps(plain)) > _MAX_FIELD_CHARS:
        raise ToolError(f"{name} identifies this call, so it must have at most {_MAX_FIELD_CHARS} characters")
    return plain


def _plain(value: Any, *, secret_key: bytes | None = None) -> Any:
    """Return a value in a JSON form that no other value has.

    Args:
        value: The value.
        secret_key: The key for digests of secrets. None rejects secrets.

    Raises:
        ValueError: The value has no JSON form, or contains a secret.
    """
    if isinstance(value, _SECRETS):
        if secret_key is None:
            raise ValueError("a secret must not identify a call")
        # Without the key, a reader of the ledger could find a short secret by guessing.
        text = json.dumps(_plain(cast("SecretStr", value).get_secret_value(), secret_key=secret_key))
        return {"secret": hmac.digest(secret_key, text.encode(), "sha256").hex()}
    if isinstance(value, Enum):
        return {type(value).__name__: _plain(value.value, secret_key=secret_key)}
    if isinstance(value, str):
        return unicodedata.normalize("NFC", value)
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, BaseModel):
        fields = {**vars(value), **(value.model_extra or {})}
        return {type(value).__name__: _pairs(fields, secret_key=secret_key)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
        return {type(value).__name__: _pairs(fields, secret_key=secret_key)}
    if isinstance(value, Mapping):
        return {"map": _pairs(cast("Mapping[Any, Any]", value), secret_key=secret_key)}
    if isinstance(value, list | tuple):
        return [_plain(each, secret_key=secret_key) for each in cast("list[Any]", value)]
    if isinstance(value, set | frozenset):
        members = [_plain(each, secret_key=secret_key) for each in cast("set[Any]", value)]
        return {"set": sorted(members, key=json.dumps)}
    text = to_jsonable_python(value, bytes_mode="base64", inf_nan_mode="strings")
    return {type(value).__name__: text if isinstance(text, str | int | float) else _plain(text, secret_key=secret_key)}


def _pairs(values: Mapping[Any, Any], *, secret_key: bytes | None) -> list[Any]:
    pairs = [
        [_plain(key, secret_key=secret_key), _plain(value, secret_key=secret_key)] for key, value in values.items()
    ]
    return sorted(pairs, key=json.dumps)
