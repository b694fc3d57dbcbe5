"""Read the form on an HTML page like a browser, fill it in, and encode it as a browser sends it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import urlencode

__all__ = ["HtmlControl", "HtmlForm", "read_page"]


@dataclass(slots=True)
class HtmlControl:
    """One control. Several radio buttons, checkboxes or buttons can share one name."""

    name: str
    kind: str
    value: str
    chosen: bool = True
    attributes: dict[str, str] = field(default_factory=dict[str, str])


class HtmlForm(HTMLParser):
    """The only form on a page, and all the page's elements and texts."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.controls: list[HtmlControl] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self._area: HtmlControl | None = None
        self._menu: tuple[str, dict[str, str]] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        self.elements.append((tag, attributes))
        name = attributes.get("name", "")
        match tag:
            case "input":
                kind = attributes["type"]
                chosen = "checked" in attributes or kind not in ("radio", "checkbox")
                value = attributes["value"] if kind == "hidden" else _one_line(attributes["value"])
                self.controls.append(HtmlControl(name, kind, value, chosen, attributes))
            case "textarea":
                self._area = HtmlControl(name, tag, "", True, attributes)
                self.controls.append(self._area)
            case "select":
                self._menu = name, attributes
            case "option" if self._menu is not None:
                name, of_menu = self._menu
                chosen = "selected" in attributes
                self.controls.append(HtmlControl(name, "select", attributes["value"], chosen, of_menu))
            case "button":
                self.controls.append(HtmlControl(name, tag, attributes.get("value", ""), False, attributes))
            case _:
                pass

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea" and self._area is not None:
            self._area.value = self._area.value.removeprefix("\n")
            self._area = None
        elif tag == "select" and self._menu is not None:
            options = self.named(self._menu[0])
            if not any(option.chosen for option in options):
                options[0].chosen = True
            self._menu = None

    def handle_data(self, data: str) -> None:
        if self._area is not None:
            self._area.value += data
        else:
            self.texts.append(data)

    @property
    def text(self) -> str:
        """Return the page's visible text, on one line."""
        return " ".join(" ".join(self.texts).split())

    def named(self, name: str) -> list[HtmlControl]:
        return [control for control in self.controls if control.name == name]

    def with_id(self, id: str) -> dict[str, str]:
        """Return an element's attributes."""
        (found,) = [attributes for _, attributes in self.elements if attributes.get("id") == id]
        return found

    def fill(self, name: str, text: str) -> "HtmlForm":
        """Type a text."""
        (control,) = self.named(name)
        control.value = text
        return self

    def choose(self, name: str, *values: str) -> "HtmlForm":
        """Choose these options in a control, and no others."""
        for control in self.named(name):
            control.chosen = control.value in values
        return self

    def posted(self, button: str = "answer") -> list[tuple[str, str]]:
        """Return the names and texts that a browser sends when a button is pressed."""
        sent = [
            (control.name, control.value)
            for control in self.controls
            if control.chosen or (control.kind == "button" and control.value == button)
        ]
        return [(name, text.replace("\r\n", "\n").replace("\n", "\r\n")) for name, text in sent]

    def body(self, button: str = "answer") -> bytes:
        """Return the body that a browser sends when a button is pressed."""
        return encode(self.posted(button))


def encode(pairs: Sequence[tuple[str, str]]) -> bytes:
    return urlencode(pairs).encode()


def read_page(html: str) -> HtmlForm:
    """Read a page."""
    form = HtmlForm()
    # A browser's parser knows one kind of newline.
    form.feed(html.replace("\r\n", "\n").replace("\r", "\n"))
    form.close()
    return form


def _one_line(text: str) -> str:
    return text.replace("\n", "")
