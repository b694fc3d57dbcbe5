"""The person at a terminal, who reads forms, pages and messages, and types the answers."""

import webbrowser
from collections.abc import Mapping
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import anyio.to_thread
from mcp_types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    TextContent,
)

from roundtrip.client.fields import hint_of, is_single_value, label_of, read_typed, shown_value
from roundtrip.client.terminal import Terminal
from roundtrip.questions.fields import FieldInvalid, FieldKind, FormField, fields_of
from roundtrip.text import printable

_DECLINE: Final = ":decline"
_CANCEL: Final = ":cancel"
_EXIT_HINT: Final = f"{_DECLINE} declines, {_CANCEL} cancels"


class _NoAnswer(Exception):
    """The person declined or cancelled."""

    def __init__(self, action: Literal["decline", "cancel"]) -> None:
        super().__init__(action)
        self.result = ElicitResult(action=action)


class PersonAtTerminal:
    """A person who fills in forms, visits pages and answers for a model.

    Args:
        terminal: The terminal.
        checks: Check each value, and ask again if the value does not fit its field. If this is False, the server must
            check all values.
    """

    def __init__(self, terminal: Terminal, *, checks: bool = True) -> None:
        self._terminal = terminal
        self._checks = checks

    async def fill_in(self, form: ElicitRequestFormParams) -> ElicitResult:
        """Ask for each field in a form."""
        self._terminal.quote(form.message)
        fields = fields_of(form.requested_schema)
        self._terminal.say(f"({_EXIT_HINT})", style="dim")
        content: dict[str, Any] = {}
        try:
            actions = {"y": "accept", "yes": "accept", "n": "decline", "no": "decline"}
            if not fields and await self._choose("Accept? [y/n]", actions, "type y or n") == "decline":
                return ElicitResult(action="decline")
            for field in fields:
                filled, value = await self._field(field, is_single=is_single_value(fields))
                if filled:
                    content[field.name] = value
        except _NoAnswer as no_answer:
            return no_answer.result
        return ElicitResult(action="accept", content=content)

    async def visit(self, page: ElicitRequestURLParams) -> ElicitResult:
        """Show a page's address, and open it if the person agrees."""
        show_page(self._terminal, page)
        question, actions = "Continue? [m = I open it myself, n = no]", {"m": "accept", "n": "decline", "no": "decline"}
        if can_be_opened(page.url):
            question = "Open it in the browser? [y = yes, m = I open it myself, n = no]"
            actions |= {"y": "open", "yes": "open"}
        else:
            self._terminal.say("This is not a plain http(s) address, so it cannot be opened from here.", style="yellow")
        try:
            prompt, complaint = f"{question} ({_EXIT_HINT}):", "type one of the letters in the brackets"
            action = await self._choose(prompt, actions, complaint)
        except _NoAnswer as no_answer:
            return no_answer.result
        if action == "open":
            await self._open(page.url)
        return ElicitResult(action="decline" if action == "decline" else "accept")

    async def answer_for_model(self, request: CreateMessageRequestParams) -> CreateMessageResult | None:
        """Let the person answer for a model; return None if they decline or cancel."""
        _show_messages(self._terminal, request)
        self._terminal.say(f"(end the answer with a line that contains only a dot; {_EXIT_HINT})", style="dim")
        lines: list[str] = []
        try:
            while (line := await self._line(">")) != ".":
                lines.append(line)
        except _NoAnswer:
            return None
        text = TextContent(text="\n".join(lines))
        return CreateMessageResult(
            role="assistant", content=text, model="a person at a terminal", stop_reason="endTurn"
        )

    async def _field(self, field: FormField, *, is_single: bool) -> tuple[bool, Any]:
        if not is_single:
            self._terminal.say(f"{label_of(field)}{' (required)' if field.required else ''}")
        if field.description and field.description != field.title:
            self._terminal.say(f"  {printable(field.description)}", style="dim")
        for number, choice in enumerate(field.choices, 1):
            value = "" if choice.title == choice.value else f" [{printable(choice.value)}]"
            self._terminal.say(f"  {number}) {printable(choice.title)}{value}")
        prompt = f"  {hint}:" if (hint := hint_of(field)) else "  :"
        while True:
            typed = await self._line(prompt)
            try:
                filled, value = read_typed(field, typed)
            except FieldInvalid as invalid:
                if not self._checks:
                    return True, typed.strip()
                self._complain(str(invalid))
                continue
            if filled and field.kind in (FieldKind.ONE, FieldKind.SEVERAL):
                self._terminal.say(f"  -> {shown_value(field, value)}", style="dim")
            return filled, value

    async def _choose(self, prompt: str, actions: Mapping[str, str], complaint: str) -> str:
        """Ask until the person types one of the words in `actions`. Return the action for that word."""
        while (typed := (await self._line(prompt)).strip().lower()) not in actions:
            self._complain(complaint)
        return actions[typed]

    async def _line(self, prompt: str) -> str:
        line = await self._terminal.ask(prompt)
        match line.strip() if line is not None else None:
            case None | ":cancel":
                raise _NoAnswer("cancel")
            case ":decline":
                raise _NoAnswer("decline")
            case _:
                # To type the text `:decline` or `:cancel`, the person adds a second colon.
                return line[1:] if line and line.strip() in (f":{_DECLINE}", f":{_CANCEL}") else line or ""

    async def _open(self, url: str) -> None:
        opened = await anyio.to_thread.run_sync(webbrowser.open, url, abandon_on_cancel=True)
        if not opened:
            self._terminal.say("The browser could not be started. Open the address yourself.", style="yellow")

    def _complain(self, problem: str) -> None:
        self._terminal.say(f"  Not valid: {problem}.", style="yellow")


def show_page(terminal: Terminal, page: ElicitRequestURLParams) -> None:
    """Show a page's full address and its host."""
    terminal.quote(page.message)
    terminal.say(f"Address: {printable(page.url)}")
    terminal.say(f"Host:    {_host_of(page.url)}", style="bold")


def can_be_opened(url: str) -> bool:
    """Return True if a browser may open a URL. The URL must be http(s), with a host and no invisible characters."""
    if printable(url) != url or "\\" in url or any(char.isspace() for char in url):
        return False
    try:
        parts = urlsplit(url)
        return parts.scheme.lower() in ("http", "https") and bool(parts.hostname)
    except ValueError:
        return False


def _host_of(url: str) -> str:
    if "\\" in url:
        # Browsers treat a backslash as a slash, and therefore as the end of the host.
        return "(unclear: there is a backslash in the address)"
    try:
        host = urlsplit(url).hostname
    except ValueError:
        host = None
    if not host:
        return "(none)"
    if host.isascii():
        return printable(host)
    try:
        # Letters from another script may look like ASCII letters. In IDNA form, the difference is visible.
        return f"{host.encode('idna').decode('ascii')} (written {printable(host)})"
    except UnicodeError:
        return printable(host)


def _show_messages(terminal: Terminal, request: CreateMessageRequestParams) -> None:
    """Show the messages that a model should answer."""
    terminal.say(f"The server asks for an answer from a model (at most {request.max_tokens} tokens).", style="bold")
    if request.system_prompt:
        terminal.say("system:", style="dim")
        terminal.quote(request.system_prompt)
    for message in request.messages:
        terminal.say(f"{message.role}:", style="dim")
        blocks = message.content_as_list
        terminal.quote("\n".join(b.text if isinstance(b, TextContent) else f"[{b.type}]" for b in blocks))
