"""Whether what a resolver asks for can be what its consumer takes, as far as annotations tell for sure."""

import inspect
from typing import Annotated, Any, Final, TypeVar, cast, get_args, get_origin

from mcp_types import CreateMessageResult, CreateMessageResultWithTools, ListRootsResult

from roundtrip.errors import InvalidSignature
from roundtrip.questions.markers import ElicitUrl, SdkElicit, SdkListRoots, SdkSample
from roundtrip.questions.outcomes import AcceptedElicitation
from roundtrip.resolvers.markers import Dependency, SdkResolve
from roundtrip.resolvers.signatures import arms_of, display_name, hints_of, is_async, wants_outcome

__all__ = ["asking_arms", "elicited", "misfit", "require_no_bare_resolver"]

_TOWER: Final = ((bool, int), (int, float), (float, complex), (int, complex))
"""A value of the first type is good where the second is annotated, though it is not a subclass."""


def asking_arms(returns: Any) -> list[Any]:
    """The members of a return annotation that are questions."""
    kinds = (SdkElicit, ElicitUrl, SdkSample, SdkListRoots)
    found: list[Any] = []
    for arm in arms_of(returns):
        kind = get_origin(arm) or arm
        if isinstance(kind, type) and issubclass(kind, kinds):
            found.append(arm)
    return found


def elicited(arm: Any) -> Any:
    """The schema in `Elicit[Schema]`, where the annotation tells; None where it does not."""
    parameters = get_args(arm)
    told = bool(parameters) and parameters[0] is not Any and not isinstance(parameters[0], TypeVar)
    return parameters[0] if told else None


def misfit(returns: Any, filled: Any) -> tuple[str, str] | None:
    """The names of what is asked for and of what is taken, where no answer can fit; else None.

    Args:
        returns: The return annotation of a resolver.
        filled: The annotation of the parameter that it fills, without the marker.
    """
    asking = asking_arms(returns)
    yielded = _yielded(asking[0]) if len(asking) == 1 else ()
    taken = arms_of(_taken(filled))
    if not yielded or not taken or any(_may_fit(one, other) for one in yielded for other in taken):
        return None
    return yielded[0].__name__, " | ".join("None" if one is type(None) else one.__name__ for one in taken)


def _yielded(arm: Any) -> tuple[Any, ...]:
    """The types that the answer to a question may have."""
    kind = get_origin(arm) or arm
    if issubclass(kind, SdkListRoots):
        return (ListRootsResult,)
    if issubclass(kind, SdkSample):
        return (CreateMessageResult, CreateMessageResultWithTools)
    schema = elicited(arm)
    return arms_of(schema) if schema is not None else ()


def _taken(filled: Any) -> Any:
    """What a consumer takes of an accepted answer."""
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
    """Return True unless both are classes that have nothing to do with each other."""
    if not isinstance(asked, type) or not isinstance(taken, type) or get_origin(taken) or get_origin(asked):
        return True
    asked, taken = _unsubscripted(asked), _unsubscripted(taken)
    if taken in (object, Any) or getattr(taken, "_is_protocol", False) or (asked, taken) in _TOWER:
        return True
    try:
        return issubclass(asked, taken) or issubclass(taken, asked)
    except TypeError:
        # A TypedDict, say, which can be asked nothing about its subclasses.
        return True


def _unsubscripted(kind: type[Any]) -> type[Any]:
    generic = getattr(kind, "__pydantic_generic_metadata__", None)
    return (generic.get("origin") if generic else None) or kind


def require_no_bare_resolver(annotation: Any, *, parameter: str, function: str, owner: str | None) -> None:
    """Refuse a resolver that is written without `Resolve`: it would be ignored, and a client could fill the parameter.

    Raises:
        InvalidSignature: There is one.
    """
    if get_origin(annotation) is not Annotated:
        return
    for extra in get_args(annotation)[1:]:
        if isinstance(extra, SdkResolve | Dependency) or not inspect.isroutine(extra):
            continue
        # Of other plain functions nobody knows what they are for.
        if is_async(extra) or asking_arms(hints_of(extra).get("return")):
            where = f"{owner}: " if owner is not None else ""
            name = display_name(extra)
            raise InvalidSignature(
                f"{where}parameter {parameter!r} of {function!r} is written Annotated[T, {name}], which fills nothing; "
                f"write {parameter}: Annotated[T, Resolve({name})]"
            )
