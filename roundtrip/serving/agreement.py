"""Worker agreement: all workers of a service must have matching keys, build, audience and ledger."""

from collections.abc import Sequence
from typing import Final

from roundtrip.ledger.contract import Reach
from roundtrip.server.key_files import KEY_FILE_VARIABLE, KEYS_VARIABLE
from roundtrip.server.probe import Identity
from roundtrip.serving.settings import ServeSettings

_KEYS_ADVICE = (
    f"give all of them the same key: ROUNDTRIP_KEYS=$(roundtrip keys new --print), or a file with {KEY_FILE_VARIABLE} "
    "(roundtrip keys new FILE)"
)
_LEDGER_ADVICE = "Give the server ledger=SqliteLedger(PATH), RedisLedger(URL) or PostgresLedger(DSN)"

_WITHOUT_FORMS: Final = {
    "link": "get links to question pages",
    "model": "are asked through their model if a question allows that",
}
"""For each channel, what happens to clients that cannot receive a form."""

_DIFFERENCES: Final = {
    "audience": "the workers belong to different services, {0.audience!r} and {1.audience!r}, and would reject each "
    "other's calls. Give the server the same name or the same audience= in every process",
    "keys": "the workers have different keys, and would reject each other's calls. Set the keys where all workers read "
    f"them: {KEYS_VARIABLE} or {KEY_FILE_VARIABLE}",
    "build": "the workers have different tools: source, names or schemas differ. Register the same tools in every "
    "process, and do not change the source while workers start",
}


def objection(identities: Sequence[Identity]) -> str | None:
    """Return why these workers must not serve together, and how to fix that; None if they may serve together."""
    first, *others = identities
    if others and (reason := _solo_reason(first)) is not None:
        return reason
    for other in others:
        for attribute, text in _DIFFERENCES.items():
            if getattr(other, attribute) != getattr(first, attribute):
                return text.format(first, other)
    return None


def objection_to_newcomer(newcomer: Identity, running: Sequence[Identity]) -> str | None:
    """Return why a new worker must not join the running workers; None if it may join them.

    The new worker's keys may be one rotation step ahead or behind, and its build may differ.
    """
    if (reason := _solo_reason(newcomer)) is not None:
        return reason
    for other in running:
        if newcomer.audience != other.audience:
            return f"its audience is {newcomer.audience!r}, but a running worker's is {other.audience!r}"
        if not _verify_each_other(newcomer.keys, other.keys):
            return (
                "it and a running worker cannot verify each other's tokens. If the keys were rotated again before all "
                "workers were replaced, run roundtrip keys rotate FILE --back, reload, wait for 'replaced all workers' "
                "and rotate again; otherwise, restart the service, and then replace keys with roundtrip keys rotate"
            )
    return None


def cautions(identity: Identity) -> list[str]:
    """Return warnings about calls that end when this process restarts, or that other instances cannot serve."""
    warnings: list[str] = []
    if identity.own_key:
        warnings.append(
            "this process made its own key, so calls end with the process, and no other instance can serve them. "
            f"Set {KEYS_VARIABLE} or {KEY_FILE_VARIABLE} (roundtrip keys new)"
        )
    limits = {
        "exactly_once= and once_per= hold only within this process": identity.exactly_once,
        "waiting calls (tasks, question pages, approvals) end with this process": identity.stores_calls,
    }
    if identity.reach is Reach.PROCESS and any(limits.values()):
        limited = ", and ".join(text for text, applies in limits.items() if applies)
        warnings.append(f"{limited}, because its ledger is a {identity.ledger}. {_LEDGER_ADVICE}")
    return warnings


def caution_for_older_clients(
    identity: Identity, settings: ServeSettings, *, obstacle: str | None = None
) -> str | None:
    """Return a warning if clients on protocol version 2025-11-25 or older cannot be asked by form, else None.

    Args:
        identity: The server's identity.
        settings: The service's settings.
        obstacle: Why several workers cannot keep sessions, if they cannot.
    """
    if settings.asks_older_clients:
        return None
    if obstacle is not None:
        reason = f"the workers cannot pass sessions on: {obstacle}"
        fix = "set TMPDIR to a writable folder with a short path, or serve with --workers 1"
    elif settings.sessions is False:
        reason, fix = "--no-sessions is set", "leave --no-sessions out"
    else:
        reason, fix = "--json-response is always", "set --json-response to auto"
    effect = next((text for channel, text in _WITHOUT_FORMS.items() if channel in identity.channels), None)
    advice = f"To ask them by form, {fix}." if "form" in identity.channels else "The server does not use forms."
    if effect is None:
        effect = "cannot be asked, and each tool that asks them fails"
    return f"clients on 2025-11-25 and before {effect}, because {reason}. {advice}"


def caution_of_reload(newcomer: Identity, before: Identity) -> str | None:
    """Return a warning if the changed code cannot continue the old code's calls, else None."""
    if newcomer.audience != before.audience:
        return (
            f"calls in flight are lost: the server's audience changed from {before.audience!r} to {newcomer.audience!r}"
        )
    if not _verify_each_other(newcomer.keys, before.keys):
        return (
            "calls in flight are lost: the server's keys changed. Omit keys=, so that --reload keeps one key, or set "
            f"{KEYS_VARIABLE} or {KEY_FILE_VARIABLE}"
        )
    return None


def _verify_each_other(keys: Sequence[str], other_keys: Sequence[str]) -> bool:
    # A custom codec does not report its keys. Accept it, because its author is responsible for key rotation.
    return not keys or not other_keys or (keys[0] in other_keys and other_keys[0] in keys)


def _solo_reason(identity: Identity) -> str | None:
    if identity.own_key:
        return f"each worker would make its own key, and reject the other workers' calls; {_KEYS_ADVICE}"
    if identity.exactly_once and identity.reach is Reach.PROCESS:
        return (
            "tools that run once (exactly_once=, once_per=) need a ledger that all workers share, but "
            f"{identity.ledger} covers one process: two workers could run the same call. {_LEDGER_ADVICE}, or serve "
            "with --workers 1"
        )
    if identity.stores_calls and identity.reach is Reach.PROCESS:
        return (
            f"waiting calls (tasks, pages, approvals) need a ledger that all workers share, but {identity.ledger} "
            f"covers one process: another worker would not find them. {_LEDGER_ADVICE}, or serve with --workers 1"
        )
    return None
