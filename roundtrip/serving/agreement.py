"""What the workers of one service must agree on before they serve, and what is told where they do not."""

from collections.abc import Sequence

from roundtrip.ledger.contract import Reach
from roundtrip.server.identity import Identity
from roundtrip.server.key_files import KEY_FILE_VARIABLE, KEYS_VARIABLE

__all__ = ["cautions", "objection", "objection_to_newcomer"]

_GIVE_KEYS = (
    f"give all of them the same key: ROUNDTRIP_KEYS=$(roundtrip keys new --print), or a file with {KEY_FILE_VARIABLE} "
    "(roundtrip keys new FILE)"
)


def objection(identities: Sequence[Identity]) -> str | None:
    """Why these must not serve together, and what to do; None if they may."""
    first = identities[0]
    if len(identities) > 1 and (alone := _alone(first)) is not None:
        return alone
    for other in identities[1:]:
        if other.audience != first.audience:
            return (
                f"the workers are of different services, {first.audience!r} and {other.audience!r}, and would refuse "
                "each other's calls. Give the server one name, or audience=, that does not depend on the process"
            )
        if other.keys != first.keys:
            return (
                "the workers have different keys, and would refuse each other's calls. Take them from where all "
                f"workers find the same: {KEYS_VARIABLE} or {KEY_FILE_VARIABLE}"
            )
        if other.build != first.build:
            return (
                "the workers have different tools: their source, names or schemas differ. Register tools by nothing "
                "that differs between processes, and do not change the source while they start"
            )
    return None


def objection_to_newcomer(newcomer: Identity, running: Sequence[Identity]) -> str | None:
    """Why a worker must not serve next to those that do, from which its keys and its build may differ by one step."""
    if (alone := _alone(newcomer)) is not None:
        return alone
    for other in running:
        if newcomer.audience != other.audience:
            return f"it is of another service, {newcomer.audience!r} and not {other.audience!r}"
        if not _verify_each_other(newcomer.keys, other.keys):
            return (
                "it does not know the key that a running worker signs with, or the other way round, so calls would be "
                "lost. Replace keys in three steps: roundtrip keys rotate"
            )
    return None


def cautions(identity: Identity) -> list[str]:
    """What a single worker should be warned of, as it may not stay alone."""
    told: list[str] = []
    if identity.own_key:
        told.append(
            "this process has made its own key: calls do not outlive it, and no other instance can serve them. "
            f"Set {KEYS_VARIABLE} or {KEY_FILE_VARIABLE} (roundtrip keys new)"
        )
    if identity.exactly_once and identity.reach is Reach.PROCESS:
        told.append(
            f"tools demand to run once, and {identity.ledger} holds within this process only: after a restart, or on "
            "another instance, they may run again. Give Server(ledger=...) a SqliteLedger or a RedisLedger"
        )
    return told


def _verify_each_other(some: Sequence[str], others: Sequence[str]) -> bool:
    # Codecs that nothing is known of are their author's to roll.
    return not some or not others or (some[0] in others and others[0] in some)


def _alone(identity: Identity) -> str | None:
    if identity.own_key:
        return f"each worker would make a key of its own, and refuse the calls of the others; {_GIVE_KEYS}"
    if identity.exactly_once and identity.reach is Reach.PROCESS:
        return (
            f"tools demand to run once, and {identity.ledger} holds within one process only: two workers would run "
            "them twice. Give the server a ledger that all workers share, Server(ledger=SqliteLedger(PATH)) or "
            "RedisLedger(URL), or serve with --workers 1"
        )
    return None
