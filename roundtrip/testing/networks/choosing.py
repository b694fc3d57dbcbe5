"""The networks by name, and the choice of a mark among them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, cast

from roundtrip.testing.networks.attacks import Delay, Eavesdrop, Garble, Interleave, Invent, Strip, Swap, Tamper
from roundtrip.testing.networks.carrying import Deploy, Drop, Duplicate, Hop, Reorder, Restart, Rotate
from roundtrip.testing.networks.fleet import Make
from roundtrip.testing.networks.network import Network

__all__ = ["NETWORKS", "Stack", "choose", "name_of", "stack_of"]

Stack = tuple[Network, ...]
"""Networks that requests go through, outermost first."""

NETWORKS: Final[Mapping[str, Callable[[], Network]]] = {
    "hop": Hop,
    "restart": Restart,
    "duplicate": Duplicate,
    "duplicate-at-once": lambda: Duplicate(at_once=True),
    "drop": Drop,
    "reorder": Reorder,
    "rotate": Rotate,
    "delay": Delay,
    "tamper": Tamper,
    "swap": Swap,
    "strip": Strip,
    "invent": Invent,
    "garble": Garble,
    "interleave": Interleave,
    "eavesdrop": Eavesdrop,
}
"""The networks without arguments; `Deploy` needs the other build."""


def choose(
    which: object, *, without: Iterable[str] = (), deploy: Make | None = None, secrets: str | Sequence[str] = ()
) -> list[Stack]:
    """Return the stacks of networks that a mark names.

    Args:
        which: True for all, or a list of names, networks, and tuples of networks to stack.
        without: Names of stacks to leave out; a stack's name joins those of its networks with `+`.
        deploy: Makes an instance of another build, which takes over in the middle of each call.
        secrets: Texts that must not be readable in any token.

    Raises:
        ValueError: A name or an option is invalid.
    """
    if which is False or which is None:
        return []
    if isinstance(without, str):
        raise ValueError(f"without= is a list of names: [{without!r}]")
    if deploy is not None and not callable(deploy):
        raise ValueError("deploy= is a function that makes an instance of the other build")
    if which is True:
        which = [*NETWORKS, "deploy"] if deploy is not None else [*NETWORKS]
    if isinstance(which, str) or not isinstance(which, Iterable):
        raise ValueError("hostile= is True, or a list of networks and their names")
    stacks = [_stack(one, deploy, secrets) for one in cast("Iterable[object]", which)]
    left_out = set(without)
    for name in left_out.difference(map(name_of, stacks)):
        _require(name)
    return [stack for stack in stacks if name_of(stack) not in left_out]


def stack_of(network: object) -> Stack:
    """Return the stack for `User(network=...)`: a network, a name, or several of them, outermost first.

    Raises:
        ValueError: A name is unknown, or an object is not a network.
    """
    return _stack(tuple(cast("list[object]", network)) if isinstance(network, list) else network, None, ())


def name_of(stack: Stack) -> str:
    """Return the stack's name in the ids of tests."""
    return "+".join(network.name for network in stack)


def _stack(one: object, deploy: Make | None, secrets: str | Sequence[str]) -> Stack:
    parts = cast("tuple[object, ...]", one) if isinstance(one, tuple) else (one,)
    return tuple(_network(part, deploy, secrets) for part in parts)


def _network(part: object, deploy: Make | None, secrets: str | Sequence[str]) -> Network:
    if part == "deploy":
        if deploy is None:
            raise ValueError("'deploy' takes a function that makes the other build: deploy=make_other")
        return Deploy(deploy)
    if isinstance(part, str):
        _require(part)
        return Eavesdrop(secrets) if part == "eavesdrop" else NETWORKS[part]()
    if isinstance(part, type):
        raise ValueError(f"{part.__name__} is a class: give a network that is made of it, {part.__name__}(...)")
    if not hasattr(part, "carry") or not hasattr(part, "name"):
        raise ValueError(f"{part!r} is not a network: it must have a name and carry(leg, route)")
    return cast("Network", part)


def _require(name: str) -> None:
    if name not in NETWORKS and name != "deploy":
        raise ValueError(f"there is no network {name!r}; there are {', '.join(NETWORKS)} and deploy")
