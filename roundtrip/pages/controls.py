"""Controls of a form on a page: the control for a field, its text, and reading the text that a browser sends.

Choices travel by their position, and controls have their position as name. So no text of a question is in a name or a
value that a browser could change on its way.
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
"""Texts that a browser sent, by the name of their control."""

LEFT_OUT: Final = object()
"""Value of an optional field that the answer leaves out."""

_MAX_RADIOS: Final = 7
"""More choices become a menu."""
_MAX_LINE_CHARS: Final = 200
"""A text that may be longer gets several lines."""
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
"""A page without a script does not know the time zone of its reader, so it asks."""
_KEYBOARDS: Final[Mapping[str | None, str]] = {"email": "email", "uri": "url"}
_DIGITS: Final = {FieldKind.WHOLE: "numeric", FieldKind.NUMBER: "decimal"}
_MAX_FRACTION_DIGITS: Final = 3
"""Browsers read no more digits of a second."""


class Control(Enum):
    """The kinds of controls; templates compare their names."""

    LINE = "line"
    LINES = "lines"
    DATE = "date"
    MOMENT = "moment"
    RADIOS = "radios"
    MENU = "menu"
    CHECKBOXES = "checkboxes"


@dataclass(frozen=True, slots=True)
class ControlOption:
    """One option of radio buttons, checkboxes or a menu."""

    id: str
    wire: str
    """The text that the browser sends."""
    label: str
    chosen: bool


@dataclass(frozen=True, slots=True)
class FieldView:
    """A field of a form with its control, the texts in it, and the mistake that was found."""

    id: str
    """The name of the control, too."""
    field: FormField
    control: Control
    label: str
    about: str = ""
    hint: str = ""
    typed: tuple[str, ...] = ()
    """The text of the control; the chosen options; or the local time and the zone of a moment."""
    error: str | None = None

    @property
    def text(self) -> str:
        """Return the text of a control for one text."""
        return self.typed[0] if self.typed else ""

    @property
    def zone(self) -> str:
        """Return the chosen time zone of a moment."""
        return self.typed[1] if len(self.typed) > 1 else ""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names under which the browser sends this field."""
        return (self.id, f"{self.id}-zone") if self.control is Control.MOMENT else (self.id,)

    @property
    def is_group(self) -> bool:
        """Return True if the control has several parts, which a legend names."""
        return self.control in (Control.RADIOS, Control.CHECKBOXES, Control.MOMENT)

    @property
    def target(self) -> str:
        """Return the id of the element that a link to the mistake leads to."""
        return f"{self.id}-0" if self.control in (Control.RADIOS, Control.CHECKBOXES) else self.id

    @property
    def described_by(self) -> str:
        """Return the ids of the texts that describe the control."""
        parts = [("about", self.about), ("hint", self.hint), ("error", self.error)]
        return " ".join(f"{self.id}-{part}" for part, text in parts if text)

    @property
    def options(self) -> tuple[ControlOption, ...]:
        """Return the options of the control, in the order of the form."""
        listed = [(wire, printable(title)) for wire, title, _ in _choices_of(self.field)]
        # Without an answer, the tool gets the default. So a form with one has no other way to say nothing.
        if _default_of(self.field) is LEFT_OUT:
            # A radio button cannot be unchosen without a script.
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
        """Return the time zones to choose from, with the zone of an earlier answer among them."""
        is_new = _ZONE_PATTERN.fullmatch(self.zone) is not None and self.zone not in _ZONES
        known = (*_ZONES, self.zone) if is_new else _ZONES
        return tuple(
            ControlOption(f"{self.id}-zone-{place}", zone, _zone_label(zone), zone == self.zone)
            for place, zone in enumerate(known)
        )

    @property
    def input_mode(self) -> str | None:
        """Return the keyboard that a phone should show; None for its usual one."""
        least = self.field.least
        if least is not None and least >= 0 and self.field.kind in _DIGITS:
            # Some phones have no minus among their digits.
            return _DIGITS[self.field.kind]
        return _KEYBOARDS.get(self.field.format)


def view_of_field(id: str, field: FormField, *, is_only: bool = False) -> FieldView:
    """Return a field filled in with its default; `is_only` names the only field of a form after the question."""
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
    """Return a field with the texts that the browser sent, and its value: LEFT_OUT if the answer has none.

    The returned field has an `error` if the texts are not a value of the field, and the value then means nothing.
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


# From a field to its control.


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
    """Return the default of a field; LEFT_OUT without one, or for one that its control cannot show."""
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
    """Return the name of a field as words: `file_name` becomes `File name`."""
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


# From the texts of a control to a value.


def _choices_of(field: FormField) -> list[tuple[str, str, Any]]:
    """Return the choices of a field: the text that the browser sends for each, its title and its value."""
    if field.kind is FieldKind.YES_NO:
        return [("yes", "Yes", True), ("no", "No", False)]
    return [(str(place), choice.title, choice.value) for place, choice in enumerate(field.choices)]


def _value_of(view: FieldView) -> Any:
    """Return the value that the texts of a control spell.

    Raises:
        FieldInvalid: They spell none; the message is a sentence for the reader.
    """
    field = view.field
    match view.control:
        case Control.CHECKBOXES:
            value = [_chosen(field, wire) for wire in view.typed]
            if not value and not field.required and field.least:
                return LEFT_OUT
        case Control.RADIOS | Control.MENU:
            value = _chosen(field, view.text) if view.text else _nothing(field, "Choose one.")
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


def _chosen(field: FormField, wire: str) -> Any:
    found = [value for known, _, value in _choices_of(field) if known == wire]
    if not found:
        raise FieldInvalid("Choose one of the options.")
    return found[0]


def _read_text(field: FormField, text: str) -> Any:
    is_free = field.kind is FieldKind.TEXT and field.format is None
    typed = text if is_free else text.strip()
    if not typed:
        # A text that was there and was removed is an empty text, if the form allows it.
        if is_free and (field.default == "" if field.required else field.has_default) and not field.least:
            return ""
        return _nothing(field, "Fill this in.")
    if any(unicodedata.category(char) in ("Cc", "Cs") and char not in "\n\t" for char in typed):
        raise FieldInvalid("It contains a character that cannot be shown. Type it again.")
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
    """Return the text of a date and time with its zone, as the format `date-time` has it."""
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
    """Return a text with the newlines that were typed: browsers send each as CR and LF."""
    return text.replace("\r\n", "\n").replace("\r", "\n")
