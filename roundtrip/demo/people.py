"""Who answers the demo's questions: a script, or the person at the terminal."""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from mcp_types import ElicitRequestFormParams, ElicitResult

__all__ = ["DemoPerson", "Person", "ScriptedPerson"]

Content = dict[str, str | int | float | bool | list[str] | None]

_YES: Final = ("y", "yes", "true")
_NO: Final = ("n", "no", "false")


class Person(Protocol):
    """Somebody who fills in forms."""

    def answer(self, key: str, form: ElicitRequestFormParams) -> ElicitResult:
        """Accept with the form filled in, decline or cancel."""
        ...


class ScriptedPerson:
    """Gives answers that were written down before, by the name of the question; declines what it has none for."""

    def __init__(self, answers: Mapping[str, Content]) -> None:
        self._answers = answers

    def answer(self, key: str, form: ElicitRequestFormParams) -> ElicitResult:
        """Give the answer to this question."""
        del form
        content = self._answers.get(key)
        return ElicitResult(action="decline") if content is None else ElicitResult(action="accept", content=content)


class DemoPerson:
    """Asks field by field. What is typed is sent as it is: whether it is valid is for the server to say.

    The end of the input cancels the call.
    """

    def __init__(self, read: Callable[[str], str] = input) -> None:
        self._read = read

    def answer(self, key: str, form: ElicitRequestFormParams) -> ElicitResult:
        """Put the form to the person."""
        del key
        schema = form.requested_schema
        fields: dict[str, dict[str, Any]] = schema.get("properties", {})
        content: Content = {}
        for name, field in fields.items():
            try:
                typed = self._read(_prompt(name, field)).strip()
            except EOFError:
                return ElicitResult(action="cancel")
            if typed == "decline":
                return ElicitResult(action="decline")
            if typed == "cancel":
                return ElicitResult(action="cancel")
            if typed or name in schema.get("required", ()):
                content[name] = _value(typed, field)
        return ElicitResult(action="accept", content=content)


def _choices(field: Mapping[str, Any]) -> list[str]:
    if field.get("type") == "boolean":
        return ["yes", "no"]
    return [str(choice) for choice in field.get("enum", ())]


def _prompt(name: str, field: Mapping[str, Any]) -> str:
    title = field.get("description") or field.get("title") or name
    choices = _choices(field)
    hint = f" ({', '.join(choices)})" if choices else ""
    optional = " [may be left empty]" if "default" in field else ""
    return f"    {title}{hint}{optional}: "


def _value(typed: str, field: Mapping[str, Any]) -> str | int | float | bool:
    """What was typed in the type that the form wants, where it can be read so."""
    kind = field.get("type")
    if kind == "boolean" and typed.lower() in (*_YES, *_NO):
        return typed.lower() in _YES
    if kind in ("integer", "number"):
        try:
            return int(typed) if kind == "integer" else float(typed)
        except ValueError:
            return typed
    return typed
