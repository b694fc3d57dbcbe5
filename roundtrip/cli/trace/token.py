"""`roundtrip trace token`: show what a token contains."""

import json
import os
import re
import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import Final

from roundtrip.cli.command import Command, CommandFailed, report_errors
from roundtrip.cli.parsing import OptionsAnywhere, add_json
from roundtrip.cli.trace.sources import present
from roundtrip.cli.trace.terminal import Part, Screen
from roundtrip.errors import TokenRejected
from roundtrip.machine.journal import OUTCOMES, Journal
from roundtrip.server.key_files import KEY_FILE_VARIABLE, KEYS_VARIABLE, KeyFile, keys_of
from roundtrip.text import build_text, iso_text
from roundtrip.tokens.binding import TokenBinding
from roundtrip.tokens.token import MAX_TOKEN_BYTES
from roundtrip.trace.explaining.wording import INTENT_TEXTS, distance_text, size_text
from roundtrip.trace.reading.tokens import Sealed, SignatureCheck, TokenView, foreign_kind, token_data, view_token

_MAX_KEYS_BYTES: Final = 64 * 1024
_ROLE_LINE: Final = re.compile(rb"(?:\s*#[^\n]*\n)*\s*(?:signs|next|former)\s")
"""The beginning of a file that `roundtrip keys` wrote. Each line begins with a key's role."""
_LABEL_CHARS: Final = 11
_TOKENLIKE: Final = re.compile(r"(?:r[1-9][a-z]|v1|rt1)[A-Za-z0-9_-]{0,4}\.[A-Za-z0-9_-]{16}")
_SIGNATURE_STYLES: Final = {
    SignatureCheck.UNCHECKED: "bold yellow",
    SignatureCheck.VALID: "green",
    SignatureCheck.INVALID: "bold red",
}
_SEALED_TEXTS: Final = {
    Sealed.NONE: "nothing",
    Sealed.CLOSED: "a part that can be opened only if the signature is valid",
    Sealed.OPENED: "a part that the keys opened:",
    Sealed.BROKEN: "a part that the keys cannot open",
}


class TokenUnreadable(CommandFailed):
    """The text is not a token, or no server would accept it."""

    exit_code = 1


def configure(parser: OptionsAnywhere) -> None:
    """Add the token file and the key file."""
    parser.add_argument("token", metavar="FILE", help="a file that holds the token, or - for standard input")
    parser.add_option(
        "--keys-file",
        "FILE",
        "the server's keys: a `roundtrip keys` file, or one key per line, newest first; default: from "
        f"${KEYS_VARIABLE} or ${KEY_FILE_VARIABLE}",
    )
    add_json(parser)


def run(namespace: Namespace) -> int:
    """Show the token. Return 1 if the keys do not verify the token."""
    token = _read_token(namespace.token)
    keys = _read_keys(namespace.keys_file)
    try:
        view = view_token(token, keys)
    except TokenRejected as error:
        raise TokenUnreadable(_reason_unreadable(token, error)) from error
    except ValueError as error:
        raise CommandFailed(f"the keys are invalid: {error}") from error
    try:
        present(namespace, lambda: token_data(view), lambda screen: _show(view, screen))
    except RecursionError:
        raise TokenUnreadable("the token's content is nested too deeply to show") from None
    return 1 if view.reason is not None and keys else 0


def _read_token(source: str) -> str:
    if source != "-" and not os.path.lexists(source) and _TOKENLIKE.search(source) is not None:
        raise CommandFailed(
            "the token must come from standard input or a file. As an argument, it ends up in the shell history, and "
            "every user of the machine can see it in the process list. Pipe it from the clipboard "
            "(`xclip -o | roundtrip trace token -`, `pbpaste | …`), or save it to a file and pass the file's path"
        )
    # The limit leaves room for whitespace around the token.
    raw = _read(source, limit=MAX_TOKEN_BYTES + 1024, content="token").strip()
    if not raw:
        raise CommandFailed("there is no token: " + ("standard input" if source == "-" else "the file") + " is empty")
    return raw.decode("utf-8", "replace")


def _read_keys(file: str | None) -> list[bytes]:
    if file is None:
        return keys_of_environment()
    raw = _read(file, limit=_MAX_KEYS_BYTES, content="keys")
    keys = [key.strip() for key in raw.splitlines() if key.strip()]
    if not keys:
        raise CommandFailed("the --keys-file contains no keys; write one key per line, newest first")
    if _ROLE_LINE.match(raw) is None:
        return keys
    with report_errors(ValueError):
        return [key.encode() for key in KeyFile.read(Path(file)).keys]


def keys_of_environment() -> list[bytes]:
    """Read the keys from the environment, as servers do. If the variables are unset or empty, return an empty list.

    Raises:
        CommandFailed: The variables are invalid.
    """
    variables = {name: os.environ[name] for name in (KEYS_VARIABLE, KEY_FILE_VARIABLE) if os.environ.get(name)}
    with report_errors(ValueError):
        key_set = keys_of(variables)
    return [] if key_set is None else [os.fsencode(key) for key in key_set.keys]


def _read(source: str, *, limit: int, content: str) -> bytes:
    # Do not put the file name into the message, because the user may have passed the secret itself as the name.
    with report_errors(OSError, ValueError, about=f"cannot read the file with the {content}: "):
        if source == "-":
            raw = sys.stdin.buffer.read(limit + 1)
        else:
            with Path(source).open("rb") as file:
                raw = file.read(limit + 1)
    if len(raw) > limit:
        raise CommandFailed(f"the file with the {content} must have at most {size_text(limit)}")
    return raw


def _reason_unreadable(token: str, error: TokenRejected) -> str:
    foreign = foreign_kind(token)
    if foreign is not None:
        return f"this is not a roundtrip token, but {foreign}; only its server can read it"
    return f"no server would accept this text as a token ({error.reason.value}); copy the whole token and nothing else"


def _show(view: TokenView, screen: Screen) -> None:
    _line(screen, "token", f"{size_text(view.size)}, {view.kind}")
    _line(screen, "signature", (_signature_text(view), _SIGNATURE_STYLES[view.signature]))
    _line(screen, "key hint", view.hint)
    if view.reason is not None:
        _line(screen, "rejected", (view.reason.value, "bold red"))
    if view.claims is None:
        screen.line(_unread_text(view))
    else:
        _show_claims(view.claims, screen)
    if view.journal is not None:
        _show_journal(view.journal, screen)
        _show_sealed(view.journal, view.sealed, screen)
    elif view.claims is not None:
        _line(screen, "call", "the token has no journal that this version can read")


def _signature_text(view: TokenView) -> str:
    if view.signature is SignatureCheck.VALID:
        return f"valid, by key {view.key} of {view.keys} (1 is the newest)"
    if view.signature is SignatureCheck.INVALID:
        return "invalid: anyone who held the token may have written what follows"
    sources = f"${KEYS_VARIABLE}, ${KEY_FILE_VARIABLE} or --keys-file"
    return f"not checked, because there are no keys ({sources}): anyone may have written what follows"


def _unread_text(view: TokenView) -> str:
    if view.kind == "encrypted":
        return "The whole token is encrypted. Only the keys that created it can open it."
    return "The token does not contain a call's journal."


def _show_claims(claims: TokenBinding, screen: Screen) -> None:
    _line(screen, "method", claims.method)
    for name in ("target", "arguments", "audience"):
        _line(screen, name, f"digest {getattr(claims, name).hex()}")
    _line(screen, "principal", f"digest {claims.principal.hex()}" if claims.principal else "none")


def _show_journal(journal: Journal, screen: Screen) -> None:
    _line(screen, "call", journal.call_id)
    _line(screen, "leg", f"{journal.leg}, round {journal.round}")
    _line(screen, "born", _when(journal.born))
    _line(screen, "written", _when(journal.written))
    _line(screen, "deadline", _when(journal.deadline))
    _line(screen, "plan", journal.fingerprint or "-")
    _line(screen, "build", build_text(journal.build))
    _line(screen, "version", "-" if journal.version is None else journal.version)
    if journal.chain:
        _line(screen, "intent", INTENT_TEXTS[journal.chain])
    _line(screen, "answers", "" if journal.entries else "none")
    for key, entry in journal.entries.items():
        data = "" if entry.data is None else f" {_compact(entry.data)}"
        screen.line(key, f": {OUTCOMES[entry.action.word]}{data}", indent=2)
    _line(screen, "asked", "" if journal.asked else "none")
    for key, asked in journal.asked.items():
        counts = f" (invalid answers: {asked.attempts}, answers lost to rewording: {asked.discards})"
        screen.line(key, counts if asked.attempts or asked.discards else "", indent=2)


def _show_sealed(journal: Journal, sealed: Sealed, screen: Screen) -> None:
    _line(screen, "sealed", _SEALED_TEXTS[sealed])
    if sealed is not Sealed.OPENED:
        return
    _line(screen, "computed", "" if journal.computed else "none")
    for key, computed in journal.computed.items():
        screen.line(key, f": {_compact(computed.value)}", indent=2)
    authored = journal.authored
    _line(
        screen, "author's", "no request_state" if authored is None else f"request_state of {len(authored)} characters"
    )


def _line(screen: Screen, label: str, text: Part) -> None:
    if text:
        screen.line((f"{label:<{_LABEL_CHARS}}", "dim"), text)
    else:
        screen.line((label, "dim"))


def _when(at: float) -> str:
    try:
        moment = iso_text(at, timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{at} (not a time)"
    return f"{moment} ({distance_text(at - time.time())})"


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))


COMMANDS: Final = {
    "token": Command(
        "Show a token's content: signature, deadline, call, answers and open questions. The signed part is readable "
        "without a key; the server's keys verify the signature and open the sealed part. The keys come from "
        f"${KEYS_VARIABLE} (newest first, separated by commas), from the key file that ${KEY_FILE_VARIABLE} names, or "
        "from --keys-file. The exit code is 0 if the token was read, 1 if the text is not a token or does not verify "
        "with these keys, 2 for wrong usage.",
        configure,
        run=run,
    )
}
