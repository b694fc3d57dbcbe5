"""The person at the terminal, who is asked what the server asks."""

import webbrowser
from typing import Any, Final

import anyio.to_thread
from mcp_types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    TextContent,
)

from roundtrip.client.fields import FieldInvalid, FieldKind, FormField
from roundtrip.client.forms import fields_of, is_single_value
from roundtrip.client.showing import can_be_opened, show_messages, show_page
from roundtrip.client.terminal import Terminal
from roundtrip.safe_text import printable

__all__ = ["PersonAtTerminal"]

_DECLINE: Final = ":decline"
_CANCEL: Final = ":cancel"
_WAYS_OUT: Final = f"{_DECLINE} says no, {_CANCEL} breaks off"


class _NoAnswer(Exception):
    """The person does not answer; `action` says how."""

    def __init__(self, action: str) -> None:
        super().__init__(action)
        self.action = action


class PersonAtTerminal:
    """Is shown forms, pages and messages, and answers or not."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal

    async def fill_in(self, form: ElicitRequestFormParams) -> ElicitResult:
        """Ask for every field of a form."""
        self._terminal.quote(form.message)
        fields = fields_of(form.requested_schema)
        self._terminal.say(f"({_WAYS_OUT})", style="dim")
        content: dict[str, Any] = {}
        try:
            if not fields:
                await self._agree("Accept? [y/n]")
            for field in fields:
                filled, value = await self._field(field, alone=is_single_value(fields))
                if filled:
                    content[field.name] = value
        except _NoAnswer as refused:
            return ElicitResult.model_validate({"action": refused.action})
        return ElicitResult(action="accept", content=content)

    async def visit(self, page: ElicitRequestURLParams) -> ElicitResult:
        """Show where a page is, and open it if the person wants that."""
        show_page(self._terminal, page)
        may_open = can_be_opened(page.url)
        try:
            if may_open:
                question = "Open it in the browser? [y = yes, m = I open it myself, n = no]"
            else:
                self._terminal.say("This is no plain http(s) address, so it is not opened from here.", style="yellow")
                question = "Go on? [m = I open it myself, n = no]"
            while True:
                typed = (await self._line(f"{question} ({_WAYS_OUT}):")).strip().lower()
                if typed in ("n", "no"):
                    return ElicitResult(action="decline")
                if typed == "m":
                    return ElicitResult(action="accept")
                if typed in ("y", "yes") and may_open:
                    await self._open(page.url)
                    return ElicitResult(action="accept")
                self._complain("type one of the letters in the brackets")
        except _NoAnswer as refused:
            return ElicitResult.model_validate({"action": refused.action})

    async def stand_in(self, request: CreateMessageRequestParams) -> CreateMessageResult | None:
        """Let the person answer as the model would; None if they do not."""
        show_messages(self._terminal, request)
        self._terminal.say(f"(end the answer with a line that is only a dot; {_WAYS_OUT})", style="dim")
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

    async def _field(self, field: FormField, *, alone: bool) -> tuple[bool, Any]:
        if not alone:
            self._terminal.say(f"{field.label}{' (required)' if field.required else ''}")
        if field.description and field.description != field.title:
            self._terminal.say(f"  {printable(field.description)}", style="dim")
        for number, choice in enumerate(field.choices, 1):
            value = "" if choice.title == choice.value else f" [{printable(choice.value)}]"
            self._terminal.say(f"  {number}) {printable(choice.title)}{value}")
        prompt = f"  {field.hint}:" if field.hint else "  :"
        while True:
            typed = await self._line(prompt)
            try:
                filled, value = field.read(typed)
            except FieldInvalid as invalid:
                self._complain(str(invalid))
                continue
            if filled and field.kind in (FieldKind.ONE, FieldKind.SEVERAL):
                self._terminal.say(f"  -> {field.shown(value)}", style="dim")
            return filled, value

    async def _agree(self, question: str) -> None:
        while True:
            match (await self._line(question)).strip().lower():
                case "y" | "yes":
                    return
                case "n" | "no":
                    raise _NoAnswer("decline")
                case _:
                    self._complain("type y or n")

    async def _line(self, prompt: str) -> str:
        line = await self._terminal.ask(prompt)
        match line.strip() if line is not None else None:
            case None | ":cancel":
                raise _NoAnswer("cancel")
            case ":decline":
                raise _NoAnswer("decline")
            case _:
                # A second colon lets the words themselves be typed.
                return line[1:] if line and line.strip() in (f":{_DECLINE}", f":{_CANCEL}") else line or ""

    async def _open(self, url: str) -> None:
        opened = await anyio.to_thread.run_sync(webbrowser.open, url, abandon_on_cancel=True)
        if not opened:
            self._terminal.say("No browser could be started. Open the address yourself.", style="yellow")

    def _complain(self, what: str) -> None:
        self._terminal.say(f"  Not quite: {what}.", style="yellow")
