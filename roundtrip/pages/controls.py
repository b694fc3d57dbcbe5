"""Form controls on a page: which control a field gets, its text, and the value that a browser sends back.

Controls are named by their positions, and the browser sends each choice as a position. No control's name or value
contains text from a question, so a browser cannot change such text in transit.
"""

import json
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final, cast

from roundtrip.questions.fields import FORMATS, FieldInvalid, FieldKind, FormField
from roundtrip.text import printable
from roundtrip.untrusted import strict_json

Posted = Mapping[str, Sequence[str]]
"""The texts that a browser sent, by control name."""

LEFT_OUT: Final = object()
"""The value of an optional field that is not in the answer."""

_MAX_RADIOS: Final = 7
"""If a field has more choices than this, it becomes a menu instead of radio buttons."""
_MAX_LINE_CHARS: Final = 200
"""If a field allows a longer text than this, it gets several lines."""
_WHOLE_PATTERN: Final = re.compile(r"[+-]?[0-9]{1,400}", re.ASCII)
_DECIMAL_PATTERN: Final = re.compile(
    r"[+-]?([0-9]{1,400}(\.[0-9]{0,400})?|\.[0-9]{1,400})([eE][+-]?[0-9]{1,4})?", re.ASCII
)
_MOMENT_PATTERN: Final = re.compile(
    r"(\d{4}-\d{2}-\d{2})[Tt](\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?)([Zz]|[+-]\d{2}:\d{2})?", re.ASCII
)
_ZONE_PATTERN: Final = re.compile(r"[+-]\d{2}:\d{2}", re.ASCII)
_ZONES: Final = (
    *("-12:00", "-11:00", "-10:00", "-09:30", "-09:00", "-08:00", "-07:00", "-06:00", "-05:00", "-04:00", "-03:30"),
    *("-03:00", "-02:00", "-01:00", "Z", "+01:00", "+02:00", "+03:00", "+03:30", "+04:00", "+04:30", "+05:00"),
    *("+05:30", "+05:45", "+06:00", "+06:30", "+07:00", "+08:00", "+08:45", "+09:00", "+09:30", "+10:00", "+10:30"),
    *("+11:00", "+12:00", "+12:45", "+13:00", "+14:00"),
)
"""A page without a script cannot find out the reader's time zone, so it offers these zones."""
_KEYBOARDS: Final[Mapping[str | None, str]] = {"email": "email", "uri": "url"}
_DIGITS: Final = {FieldKind.WHOLE: "numeric", FieldKind.NUMBER: "decimal"}
_MAX_FRACTION_DIGITS: Final = 3
"""Maximum number of decimal places that browsers accept in seconds."""


class Control(Enum):
    """The kinds of controls. Templates use these names."""

    LINE = "line"
    LINES = "lines"
    DATE = "date"
    MOMENT = "moment"
    RADIOS = "radios"
    MENU = "menu"
    CHECKBOXES = "checkboxes"


@dataclass(frozen=True, slots=True)
class ControlOption:
    """One radio button, checkbox or menu option."""

    id: str
    wire: str
    """The text that the browser sends."""
    label: str
    chosen: bool


@dataclass(frozen=True, slots=True)
class FieldView:
    """Form field with its control, the text in the control, and the reader's mistake, if any."""

    id: str
    """The control's id and name."""
    field: FormField
    control: Control
    label: str
    about: str = ""
    hint: str = ""
    typed: tuple[str, ...] = ()
    """The control's text, its chosen options, or a local time and its time zone."""
    error: str | None = None

    @property
    def text(self) -> str:
        """Return the text of a control that has only one text."""
        return self.typed[0] if self.typed else ""

    @property
    def zone(self) -> str:
        """Return the time zone that the reader chose for a date and time."""
        return self.typed[1] if len(self.typed) > 1 else ""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names under which the browser sends this field's texts."""
        return (self.id, f"{self.id}-zone") if self.control is Control.MOMENT else (self.id,)

    @property
    def is_group(self) -> bool:
        """Return True if the control has several parts, which a legend labels."""
        return self.control in (Control.RADIOS, Control.CHECKBOXES, Control.MOMENT)

    @property
    def target(self) -> str:
        """Return the id of the element to which the summary of mistakes links."""
        return f"{self.id}-0" if self.control in (Control.RADIOS, Control.CHECKBOXES) else self.id

    @property
    def described_by(self) -> str:
        """Return the ids of the texts that describe the control, separated by spaces."""
        parts = [("about", self.about), ("hint", self.hint), ("error", self.error)]
        return " ".join(f"{self.id}-{part}" for part, text in parts if text)

    @property
    def options(self) -> tuple[ControlOption, ...]:
        """Return the control's options, in form order."""
        listed = [(wire, printable(title)) for wire, title, _ in _choices_of(self.field)]
        # If a field has a default, omitting its answer means the default. So offer "No answer" only if the field has no
        # default.
        if _default_of(self.field) is LEFT_OUT:
            # Without a script, a reader cannot clear a radio button.
            if self.control is Control.MENU:
                listed.insert(0, ("", "Choose one" if self.field.required else "No answer"))
            elif self.control is Control.RADIOS and not self.field.required:
                listed.append(("", "No answer"))
        chosen = self.typed if self.control is Control.CHECKBOXES else (self.text,)
        return tuple(
            ControlOption(f"{self.id}-{place}", wire, label, wire in chosen)
            for place, (wire, label) in enumerate(listed)
        )

    @property
    def zones(self) -> tuple[ControlOption, ...]:
        """Return the time zones to choose from, including the zone of an earlier answer."""
        is_new = _ZONE_PATTERN.fullmatch(self.zone) is not None and self.zone not in _ZONES
        known = (*_ZONES, self.zone) if is_new else _ZONES
        return tuple(
            ControlOption(f"{self.id}-zone-{place}", zone, _zone_label(zone), zone == self.zone)
            for place, zone in enumerate(known)
        )

    @property
    def input_mode(self) -> str | None:
        """Return the keyboard that a phone should show; None for the phone's usual keyboard."""
        least = self.field.least
        if least is not None and least >= 0 and self.field.kind in _DIGITS:
            # Show the numeric keyboard only if negative numbers are not allowed, because on some phones it has no minus
            # sign.
            return _DIGITS[self.field.kind]
        return _KEYBOARDS.get(self.field.format)


def view_of_field(id: str, field: FormField, *, is_only: bool = False) -> FieldView:
    """Return a field filled in with its default. `is_only` is True if the form has no other field."""
    default = _default_of(field)
    control = _control_of(field, default)
    label = printable(field.title or _words_of(field.name))
    return FieldView(
        id=id,
        field=field,
        control=control,
        label="Your answer" if is_only and label.casefold() == "value" else label,
        about=printable(field.description or "", keep_newlines=True),
        hint=_hint_of(field, control),
        typed=_typed_of(field, control, default),
    )


def read_field(view: FieldView, posted: Posted) -> tuple[FieldView, Any]:
    """Return a field with the texts that the browser sent, and the field's value: LEFT_OUT if the answer omits the
    field.

    If the texts are invalid, the returned field has an `error`, and the value must be ignored.
    """
    if view.control is Control.CHECKBOXES:
        typed = tuple(dict.fromkeys(posted.get(view.id, ())))
    else:
        typed = tuple(_newlines("".join(posted.get(name, ())[:1])) for name in view.names)
    view = replace(view, typed=typed)
    if view.control is Control.LINE and "\n" in view.text:
        view = replace(view, control=Control.LINES)
    try:
        return view, _value_of(view)
    except FieldInvalid as invalid:
        return replace(view, error=str(invalid)), LEFT_OUT


# Fields to controls


def _control_of(field: FormField, default: Any) -> Control:
    match field.kind:
        case FieldKind.SEVERAL:
            return Control.CHECKBOXES
        case FieldKind.YES_NO:
            return Control.RADIOS
        case FieldKind.ONE:
            return Control.RADIOS if len(field.choices) <= _MAX_RADIOS else Control.MENU
        case FieldKind.JSON:
            return Control.LINES
        case FieldKind.TEXT if field.format == "date":
            return Control.DATE
        case FieldKind.TEXT if field.format == "date-time":
            return Control.MOMENT
        case FieldKind.TEXT if field.format is None:
            is_long = field.most is not None and field.most > _MAX_LINE_CHARS
            return Control.LINES if is_long or (isinstance(default, str) and "\n" in default) else Control.LINE
        case _:
            return Control.LINE


def _default_of(field: FormField) -> Any:
    """Return a field's default; LEFT_OUT if the field has no default, or if the control cannot show it."""
    if not field.has_default:
        return LEFT_OUT
    try:
        field.check(field.default, has_format=field.format in ("date", "date-time"))
    except FieldInvalid:
        return LEFT_OUT
    return field.default


def _typed_of(field: FormField, control: Control, default: Any) -> tuple[str, ...]:
    if default is LEFT_OUT:
        return ()
    if control in (Control.RADIOS, Control.MENU, Control.CHECKBOXES):
        chosen = cast("list[object]", default if isinstance(default, list) else [default])
        return tuple(wire for wire, _, value in _choices_of(field) if value in chosen)
    if control is Control.MOMENT and (found := _MOMENT_PATTERN.fullmatch(default)) is not None:
        day, time, zone = found.groups()
        whole, dot, fraction = time.partition(".")
        return (f"{day}T{whole}{dot}{fraction[:_MAX_FRACTION_DIGITS]}", "Z" if zone in ("z", "Z", "+00:00") else zone)
    return (default,) if isinstance(default, str) and field.kind is FieldKind.TEXT else (_json_text(default),)


def _hint_of(field: FormField, control: Control) -> str:
    match field.kind:
        case FieldKind.SEVERAL:
            return f"Choose {field.bounds or 'as many as you like'}."
        case FieldKind.WHOLE:
            words = "A whole number"
        case FieldKind.NUMBER:
            words = "A number, such as 12.5"
        case FieldKind.JSON:
            words = "JSON, such as 3, true, [1, 2] or {}"
        case FieldKind.TEXT if control is Control.LINE and field.format is not None:
            words = _sentence(FORMATS[field.format][0])
        case _:
            words = ""
    hint = ", ".join(part for part in (words, field.bounds) if part)
    return f"{_sentence(hint)}." if hint else ""


def _words_of(name: str) -> str:
    """Return a field name as words: `file_name` becomes `File name`."""
    return _sentence(" ".join(name.replace("_", " ").split()) or name)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _zone_label(zone: str) -> str:
    return "UTC" if zone == "Z" else f"UTC{zone}".replace("-", "\N{MINUS SIGN}")


def _json_text(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (RecursionError, ValueError, TypeError):
        return ""


# Conversion from control texts to values


def _choices_of(field: FormField) -> list[tuple[str, str, Any]]:
    """Return a field's choices. Each consists of the text that the browser sends, a title and a value."""
    if field.kind is FieldKind.YES_NO:
        return [("yes", "Yes", True), ("no", "No", False)]
    return [(str(place), choice.title, choice.value) for place, choice in enumerate(field.choices)]


def _value_of(view: FieldView) -> Any:
    """Convert a control's texts to a value.

    Raises:
        FieldInvalid: The texts are not a valid value. The message is a sentence for the reader.
    """
    field = view.field
    match view.control:
        case Control.CHECKBOXES:
            value = [_choice_value(field, wire) for wire in view.typed]
            if not value and not field.required and field.least:
                return LEFT_OUT
        case Control.RADIOS | Control.MENU:
            value = _choice_value(field, view.text) if view.text else _nothing(field, "Choose one.")
        case Control.MOMENT:
            value = _moment(view)
        case Control.LINE | Control.LINES | Control.DATE:
            value = _read_text(field, view.text)
    if value is not LEFT_OUT:
        try:
            field.check(value)
        except FieldInvalid as invalid:
            words = f"choose {field.bounds}" if view.control is Control.CHECKBOXES else str(invalid)
            raise FieldInvalid(f"{_sentence(words)}.") from invalid
    return value


def _nothing(field: FormField, wanted: str) -> Any:
    if field.required:
        raise FieldInvalid(wanted)
    return LEFT_OUT


def _choice_value(field: FormField, wire: str) -> Any:
    found = [value for known, _, value in _choices_of(field) if known == wire]
    if not found:
        raise FieldInvalid("Choose one of the options.")
    return found[0]


def _read_text(field: FormField, text: str) -> Any:
    is_free = field.kind is FieldKind.TEXT and field.format is None
    typed = text if is_free else text.strip()
    if not typed:
        # If the reader empties a field with a default, the answer is an empty text, provided that the form allows it.
        if is_free and (field.default == "" if field.required else field.has_default) and not field.least:
            return ""
        return _nothing(field, "Fill this in.")
    if any(unicodedata.category(char) in ("Cc", "Cs") and char not in "\n\t" for char in typed):
        raise FieldInvalid("The text contains a character that cannot be shown. Type it again.")
    match field.kind:
        case FieldKind.WHOLE:
            return int(typed) if _WHOLE_PATTERN.fullmatch(typed) else typed
        case FieldKind.NUMBER:
            return _number(typed)
        case FieldKind.JSON:
            return _json(typed)
        case _:
            return typed


def _number(typed: str) -> float | str:
    if _WHOLE_PATTERN.fullmatch(typed):
        return int(typed)
    if _DECIMAL_PATTERN.fullmatch(typed) is None:
        raise FieldInvalid("It must be a number, such as 12.5, with a point and without spaces or commas.")
    number = float(typed)
    if not math.isfinite(number):
        raise FieldInvalid("It must be a smaller number.")
    return number


def _json(typed: str) -> Any:
    try:
        return strict_json(typed)
    except (ValueError, RecursionError) as error:
        raise FieldInvalid("It must be JSON, such as 3, true, [1, 2] or {}.") from error


def _moment(view: FieldView) -> Any:
    """Return a date, a time and a time zone as one `date-time` text."""
    local, zone = view.text.strip(), view.zone
    if not local:
        return _nothing(view.field, "Fill in a date and a time.")
    if not zone:
        raise FieldInvalid("Choose the time zone.")
    found = _MOMENT_PATTERN.fullmatch(f"{local}{zone}")
    if found is None:
        raise FieldInvalid("Fill in a date and a time.")
    day, time, _ = found.groups()
    return f"{day}T{time if time.count(':') > 1 else f'{time}:00'}{zone}"


def _newlines(text: str) -> str:
    """Return a text with LF newlines, as the reader typed it. Browsers send CR and LF for each newline."""
    return text.replace("\r\n", "\n").replace("\r", "\n")
