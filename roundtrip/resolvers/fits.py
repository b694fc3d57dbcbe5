"""Checks that a resolver's question fits the parameter that it fills. This module is needed only to make a plan."""

import functools
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast, get_args, get_origin

from mcp_types import CreateMessageResult, CreateMessageResultWithTools, ListRootsResult
from pydantic import PydanticUserError, TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema

from roundtrip.errors import InvalidSignature
from roundtrip.on_demand import load_on_use
from roundtrip.questions.markers import ElicitUrl, ExternalMarker, SdkListRoots, SdkSample
from roundtrip.questions.outcomes import AcceptedElicitation
from roundtrip.resolvers.annotations import asking_arms
from roundtrip.resolvers.signatures import arms_of, wants_outcome

if TYPE_CHECKING:
    from roundtrip.questions import forms

load_on_use(globals(), "roundtrip.questions.forms")

_TOWER: Final = ((bool, int), (int, float), (float, complex), (int, complex))
"""Pairs of types. A value of the first type fits the second type, even if the first is not a subclass."""


def elicited(arm: Any) -> Any:
    """Return `Schema` if the annotation is `Elicit[Schema]`; otherwise None."""
    parameters = get_args(arm)
    is_told = bool(parameters) and parameters[0] is not Any and not isinstance(parameters[0], TypeVar)
    return parameters[0] if is_told else None


def check_asking(returns: Any, label: str, where: str) -> None:
    """Reject a return annotation that names several questions, or a form that the protocol cannot show."""
    asking = asking_arms(returns)
    if len(asking) > 1:
        raise InvalidSignature(
            f"{where}: the return annotation of resolver {label!r} must name at most one question, got {len(asking)}; "
            "write a separate resolver for each question"
        )
    schema = elicited(asking[0]) if asking and not is_page(asking[0]) else None
    # A list may contain a mapping with titles, which no annotation can express. Lists are therefore checked during a
    # call.
    if isinstance(schema, type):
        try:
            forms.form_of(schema)
        except InvalidSignature as error:
            raise InvalidSignature(f"{where}, resolver {label!r}: {error}") from error


def is_page(arm: Any) -> bool:
    """Return True if the annotation names a question that sends users to a page."""
    return (get_origin(arm) or arm) is ElicitUrl


def asked_type(arm: Any) -> Any:
    """Return the schema or result type of the question that an annotation names."""
    return elicited(arm) if get_args(arm) else arm


def must_ask(returns: Any, filled: Any) -> bool:
    """Return True if the function can return None only by mistake, because it forgot to return its question."""
    arms = arms_of(returns)
    return (
        bool(arms)
        and len(asking_arms(returns)) == len(arms)
        and not wants_outcome(filled)
        and not any(taken in (Any, object, None, NoneType) for taken in arms_of(filled))
    )


def remembered_adapter(returns: Any, filled: Any, subject: str) -> TypeAdapter[Any]:
    """Return the adapter for a remembered value.

    The value's type comes from the resolver's return annotation. If that annotation does not give it, the type comes
    from the consumer's annotation.
    """
    asking = asking_arms(returns)
    plain = [arm for arm in arms_of(returns) if arm not in asking]
    if returns is Any or not plain:
        plain = [Any] if wants_outcome(filled) else list(arms_of(filled))
    kept: Any = functools.reduce(lambda union, arm: union | arm, plain)
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(kept)
        if kept is not Any:
            adapter.json_schema(mode="serialization")
    except (PydanticUserError, PydanticInvalidForJsonSchema, TypeError) as error:
        raise InvalidSignature(
            f"{subject} keeps a value in the token, but its type {kept!r} cannot be converted to JSON; "
            "return a model, a dataclass or plain data"
        ) from error
    return adapter


def misfit(returns: Any, filled: Any) -> tuple[str, str] | None:
    """If no answer can fit, return two type names: what a resolver asks for, and what its parameter takes.

    Args:
        returns: The resolver's return annotation.
        filled: The annotation on the parameter that the resolver fills, without the marker.

    Returns:
        None if an answer may fit.
    """
    asking = asking_arms(returns)
    yielded = _yielded(asking[0]) if len(asking) == 1 else ()
    taken = arms_of(_taken(filled))
    if not yielded or not taken or any(_may_fit(one, other) for one in yielded for other in taken):
        return None
    return yielded[0].__name__, " | ".join("None" if one is type(None) else one.__name__ for one in taken)


def _yielded(arm: Any) -> tuple[Any, ...]:
    """Return the types that the answer to a question may have."""
    kind = get_origin(arm) or arm
    if issubclass(kind, ExternalMarker):
        return (kind.outcome_type,)
    if issubclass(kind, SdkListRoots):
        return (ListRootsResult,)
    if issubclass(kind, SdkSample):
        return (CreateMessageResult, CreateMessageResultWithTools)
    schema = elicited(arm)
    return arms_of(schema) if schema is not None else ()


def _taken(filled: Any) -> Any:
    """Return the type that a consumer takes from an accepted answer."""
    if not wants_outcome(filled):
        return filled
    if hasattr(get_origin(filled), "__value__"):
        return get_args(filled)[0]
    for member in arms_of(filled):
        if isinstance(member, type) and issubclass(member, AcceptedElicitation):
            told = getattr(cast("object", member), "__pydantic_generic_metadata__", {}).get("args")
            return told[0] if told else Any
    return Any


def _may_fit(asked: Any, taken: Any) -> bool:
    """Return False if both types are classes, and neither is a subclass of the other."""
    if not isinstance(asked, type) or not isinstance(taken, type) or get_origin(taken) or get_origin(asked):
        return True
    asked, taken = _unsubscripted(asked), _unsubscripted(taken)
    if taken in (object, Any) or getattr(taken, "_is_protocol", False) or (asked, taken) in _TOWER:
        return True
    try:
        return issubclass(asked, taken) or issubclass(taken, asked)
    except TypeError:
        # Some classes, such as a TypedDict, do not support `issubclass`.
        return True


def _unsubscripted(kind: type[Any]) -> type[Any]:
    generic = getattr(kind, "__pydantic_generic_metadata__", None)
    return (generic.get("origin") if generic else None) or kind
