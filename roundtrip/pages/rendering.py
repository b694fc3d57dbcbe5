"""Render question pages from Jinja2 templates, which authors can replace one by one.

A template in the author's folder takes the place of the one with the same name here. It can extend or import the
original by the name `roundtrip/` and the name of the template. The policy of the pages allows no script, no style but
that of `page.css`, and no image but the logo.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from roundtrip.pages.calls import ShownDecision
from roundtrip.pages.forms import DECISION, TOKEN, PageForm
from roundtrip.pages.headers import policy_for
from roundtrip.pages.jinja import (
    BaseLoader,
    ChoiceLoader,
    Environment,
    FileSystemLoader,
    PackageLoader,
    PrefixLoader,
    StrictUndefined,
)
from roundtrip.pages.look import PageLook
from roundtrip.pages.template_checks import check_templates
from roundtrip.safe_text import printable

__all__ = ["PageRenderer"]

_STYLE: Final = "page.css"


class PageRenderer:
    """The pages of one server, each as an HTML text.

    Args:
        look: Name, logo and color.
        templates: A folder with the author's templates.

    Raises:
        ValueError: The folder does not exist, a template in it is invalid or replaces none, or its style sheet would
            end its element.
    """

    def __init__(self, look: PageLook, *, templates: Path | None = None) -> None:
        ours = PackageLoader("roundtrip.pages", "templates")
        loaders: list[BaseLoader] = [ours, PrefixLoader({"roundtrip": ours})]
        if templates is not None:
            if not templates.is_dir():
                raise ValueError(f"templates must be a folder, got {str(templates)!r}")
            loaders.insert(0, FileSystemLoader(templates))
        self._templates = Environment(
            loader=ChoiceLoader(loaders),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        if templates is not None:
            check_templates(self._templates, templates, ours.list_templates())
        style = self._templates.get_template(_STYLE).render(look=look)
        if "<" in style:
            raise ValueError(f"{_STYLE} must not contain '<', which could end the style sheet")
        self._shared: Mapping[str, Any] = {
            "look": look,
            "name": printable(look.name),
            "style": style,
            "token_name": TOKEN,
            "decision_name": DECISION,
        }
        self.policy = policy_for(style, look.image_source)
        """The content security policy of every page."""

    def question(self, form: PageForm, *, token: str, notice: str | None = None) -> str:
        """Return the page of a form, with its mistakes."""
        return self._render("question.html.j2", form=form, token=token, notice=notice)

    def working(self, *, seconds: int, notice: str | None = None) -> str:
        """Return the page of a call that goes on without its user; it loads itself again after some seconds."""
        return self._render("working.html.j2", seconds=seconds, notice=notice)

    def ended(
        self,
        *,
        text: str | None,
        is_error: bool,
        decisions: Sequence[ShownDecision] = (),
        notice: str | None = None,
    ) -> str:
        """Return the page of a call that has ended, with its result and decisions if the reader may see them."""
        shown = None if text is None else printable(text, keep_newlines=True)
        made = [
            {
                "message": printable(one.message.partition("\n")[0]),
                "by": printable(one.by),
                "outcome": one.outcome,
                "reason": None if one.reason is None else printable(one.reason, keep_newlines=True),
            }
            for one in decisions
        ]
        return self._render("ended.html.j2", text=shown, is_error=is_error, decisions=made, notice=notice)

    def awaiting(self, *, groups: Sequence[str], seconds: int, notice: str | None = None) -> str:
        """Return the page of a call that waits for the decision of others; it loads itself again after some seconds."""
        shown = [printable(group) for group in groups]
        return self._render("awaiting.html.j2", groups=shown, seconds=seconds, notice=notice)

    def inbox(self, **values: Any) -> str:
        """Return a page of the inbox."""
        return self._render("inbox.html.j2", **values)

    def approval(self, **values: Any) -> str:
        """Return the page of one approval."""
        return self._render("approval.html.j2", **values)

    def closed(self) -> str:
        """Return the page for every address that asks nothing: it does not say why."""
        return self._render("closed.html.j2")

    def error(self, title: str, text: str) -> str:
        """Return the page for a request that cannot be answered."""
        return self._render("error.html.j2", title=title, text=text)

    def unavailable(self, *, seconds: int, sent: Mapping[str, Sequence[str]]) -> str:
        """Return the page while nothing can be looked up; from it, what its reader has just sent can be sent again."""
        fields = [(name, value) for name, values in sent.items() for value in values]
        return self._render("unavailable.html.j2", seconds=seconds, sent=fields)

    def _render(self, template: str, **values: Any) -> str:
        return self._templates.get_template(template).render(self._shared, **values)
