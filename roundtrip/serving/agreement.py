"""Check that the workers of one service agree on keys, build, audience and ledger before they serve."""

from collections.abc import Sequence
from typing import Final

from roundtrip.ledger.contract import Reach
from roundtrip.server.key_files import KEY_FILE_VARIABLE, KEYS_VARIABLE
from roundtrip.server.probe import Identity

_GIVE_KEYS = (
    f"give all of them the same key: ROUNDTRIP_KEYS=$(roundtrip keys new --print), or a file with {KEY_FILE_VARIABLE} "
    "(roundtrip keys new FILE)"
)
_GIVE_LEDGER = "Give the server ledger=SqliteLedger(PATH), RedisLedger(URL) or PostgresLedger(DSN)"

_DIFFERENCES: Final = {
    "audience": "the workers are of different services, {0.audience!r} and {1.audience!r}, and would reject each "
    "other's calls. Give the server one name, or audience=, that does not depend on the process",
    "keys": "the workers have different keys, and would reject each other's calls. Take the keys from one place that "
    f"all workers read: {KEYS_VARIABLE} or {KEY_FILE_VARIABLE}",
    "build": "the workers have different tools: their source, names or schemas differ. Register tools by nothing that "
    "differs between processes, and do not change the source while they start",
}


def objection(identities: Sequence[Identity]) -> str | None:
    """Return the reason why these workers must not serve together, with the fix; None if they may."""
    first, *others = identities
    if others and (alone := _alone(first)) is not None:
        return alone
    for other in others:
        for attribute, text in _DIFFERENCES.items():
            if getattr(other, attribute) != getattr(first, attribute):
                return text.format(first, other)
    return None


def objection_to_newcomer(newcomer: Identity, running: Sequence[Identity]) -> str | None:
    """Return the reason why a new worker must not join the running ones; None if it may.

    Its keys may differ by one change of a rotation, and its build may differ.
    """
    if (alone := _alone(newcomer)) is not None:
        return alone
    for other in running:
        if newcomer.audience != other.audience:
            return f"its audience is {newcomer.audience!r}, and that of a running worker is {other.audience!r}"
        if not _verify_each_other(newcomer.keys, other.keys):
            return (
                "it does not have the key that a running worker signs with, or that worker does not have its key, so "
                "calls would be lost. Replace keys with roundtrip keys rotate"
            )
    return None


def cautions(identity: Identity) -> list[str]:
    """Return warnings for a single worker that may later be one of several."""
    warnings: list[str] = []
    if identity.own_key:
        warnings.append(
            "this process has made its own key: calls do not outlive it, and no other instance can serve them. "
            f"Set {KEYS_VARIABLE} or {KEY_FILE_VARIABLE} (roundtrip keys new)"
        )
    if identity.exactly_once and identity.reach is Reach.PROCESS:
        warnings.append(
            f"tools with exactly_once are covered within this process only, by its {identity.ledger}: after a restart, "
            f"or on another instance, a call can run again. {_GIVE_LEDGER}"
        )
    if identity.stores_calls and identity.reach is Reach.PROCESS:
        warnings.append(
            f"calls that wait (tasks, question pages, approvals) are in the memory of this process, in its "
            f"{identity.ledger}, and end with it. {_GIVE_LEDGER}"
        )
    return warnings


def caution_of_reload(newcomer: Identity, before: Identity) -> str | None:
    """Return a warning if changed code cannot continue the calls of the code before it; None if it can."""
    if newcomer.audience != before.audience:
        return (
            f"calls in flight are lost: the server's audience was {before.audience!r}, and is now {newcomer.audience!r}"
        )
    if not _verify_each_other(newcomer.keys, before.keys):
        return (
            "calls in flight are lost: the server has other keys than before. Leave keys= out, and --reload keeps a "
            f"key, or take the keys from {KEYS_VARIABLE} or {KEY_FILE_VARIABLE}"
        )
    return None


def _verify_each_other(some: Sequence[str], others: Sequence[str]) -> bool:
    # A custom codec reports no keys; rotating its keys is up to its author.
    return not some or not others or (some[0] in others and others[0] in some)


def _alone(identity: Identity) -> str | None:
    if identity.own_key:
        return f"each worker would make a key of its own, and reject the calls of the others; {_GIVE_KEYS}"
    if identity.exactly_once and identity.reach is Reach.PROCESS:
        return (
            f"tools with exactly_once need a ledger that all workers share, and {identity.ledger} covers one process: "
            f"two workers would run a call twice. {_GIVE_LEDGER}, or serve with --workers 1"
        )
    if identity.stores_calls and identity.reach is Reach.PROCESS:
        return (
            "calls that wait (tasks, question pages, approvals) need a ledger that all workers share, and "
            f"{identity.ledger} covers one process: another worker would not find them. {_GIVE_LEDGER}, or serve with "
            "--workers 1"
        )
    return None
