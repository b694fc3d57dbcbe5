"""Question page rendering from Jinja2 templates, which authors can replace one by one.

A template in the author's folder replaces the package template with the same name. It can extend or import the original
as `roundtrip/<name>`. The author's templates are checked when the server is created, not when a user opens a page. The
content security policy allows no scripts, no styles except `page.css`, and no images except the logo.
"""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from roundtrip.pages.forms import DECISION, TOKEN
from roundtrip.pages.headers import policy_for
from roundtrip.pages.settings import PageLook
from roundtrip.text import printable

try:
    import jinja2
    from jinja2 import meta, nodes
except ImportError as missing:
    raise ImportError("question pages need jinja2: pip install 'mcp-roundtrip[pages]'", name="jinja2") from missing

_STYLE: Final = "page.css"
_SUFFIXES: Final = (".j2", ".jinja", ".jinja2", ".html", ".css")
"""File suffixes of templates. The folder may also contain files from editors and version control."""
_VALUES: Final[Mapping[str, frozenset[str]]] = {
    "question.html.j2": frozenset({"form", "token", "notice"}),
    "working.html.j2": frozenset({"seconds", "needs_client", "notice"}),
    "awaiting.html.j2": frozenset({"groups", "seconds", "notice"}),
    "ended.html.j2": frozenset({"text", "is_error", "decisions", "notice"}),
    "closed.html.j2": frozenset(),
    "error.html.j2": frozenset({"title", "text"}),
    "unavailable.html.j2": frozenset({"seconds", "sent"}),
    "inbox.html.j2": frozenset({"approvals", "following", "reader", "path"}),
    "approval.html.j2": frozenset({"approval", "token", "notice", "mistake", "reason", "reader", "path"}),
    "page.css": frozenset(),
}
"""The values that each page's template can use, besides the shared values."""
_SHARED: Final = frozenset({"look", "name", "style", "token_name", "decision_name"})


class PageRenderer:
    """HTML pages of one server.

    Args:
        look: Name, logo and color.
        templates: A folder with the author's templates.

    Raises:
        ValueError: The folder does not exist, a template is invalid or replaces nothing, or the style sheet contains
            `<`.
    """

    def __init__(self, look: PageLook, *, templates: Path | None = None) -> None:
        ours = jinja2.PackageLoader("roundtrip.pages", "templates")
        loaders: list[jinja2.BaseLoader] = [ours, jinja2.PrefixLoader({"roundtrip": ours})]
        if templates is not None:
            if not templates.is_dir():
                raise ValueError(f"templates must be a folder, got {str(templates)!r}")
            loaders.insert(0, jinja2.FileSystemLoader(templates))
        loader, undefined = jinja2.ChoiceLoader(loaders), jinja2.StrictUndefined
        self._templates = jinja2.Environment(
            loader=loader, autoescape=True, undefined=undefined, trim_blocks=True, lstrip_blocks=True
        )
        if templates is not None:
            _check_templates(self._templates, templates, ours.list_templates())
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

    def render(self, template: str, **values: Any) -> str:
        """Return the page that a template renders with the values that `_VALUES` lists."""
        return self._templates.get_template(template).render(self._shared, **values)


def _check_templates(environment: jinja2.Environment, folder: Path, ours: Sequence[str]) -> None:
    """Check the templates in a folder. Each must be readable, and use only values that pages have. It must replace a
    package template, or be used by another template.

    Args:
        environment: Loads templates from the folder and from the package.
        folder: The folder.
        ours: The names of the package templates.

    Raises:
        ValueError: A template is invalid.
    """
    found = {
        path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.suffix in _SUFFIXES
    }
    used: set[str] = set()
    for name, path in found.items():
        used |= _check_template(environment, name, path)
    for name in found.keys() - used - set(ours):
        nearest = get_close_matches(name, ours, n=1, cutoff=0.0)
        raise ValueError(
            f"templates: {name!r} must replace a package template, or be used by another template; did you mean "
            f"{nearest[0]!r}?"
        )


def _check_template(environment: jinja2.Environment, name: str, path: Path) -> set[str]:
    """Check a template, and return the names of the templates that it uses.

    Raises:
        ValueError: The template is invalid.
    """
    try:
        tree = environment.parse(path.read_text(encoding="utf-8"), name)
        environment.get_template(name)
        used = {one for one in meta.find_referenced_templates(tree) if one is not None}
        for one in used:
            environment.get_template(one)
    except jinja2.TemplateSyntaxError as error:
        raise ValueError(f"templates: {error.name or name!r}, line {error.lineno}: {error.message}") from error
    except jinja2.TemplateNotFound as error:
        raise ValueError(f"templates: {name!r} uses {error.name!r}, which does not exist") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"templates: {name!r} cannot be read: {error}") from error
    # A partial template by the author may be used in any page, so it may use every page's values.
    values = _VALUES.get(name, frozenset[str]().union(*_VALUES.values())) | _SHARED
    unknown = sorted(meta.find_undeclared_variables(tree) - values - environment.globals.keys() - _set_in(tree))
    if unknown:
        known = ", ".join(sorted(values))
        raise ValueError(f"templates: {name!r} uses {unknown[0]!r}, which this page does not have; it has {known}")
    return used


def _set_in(tree: nodes.Template) -> set[str]:
    """Return the names that a template sets. Blocks can also use names that are set outside them."""
    names = {one.name for one in tree.find_all(nodes.Name) if one.ctx == "store"}
    names |= {one.target for one in tree.find_all(nodes.Import)} | {one.name for one in tree.find_all(nodes.Macro)}
    for one in tree.find_all(nodes.FromImport):
        names |= {name if isinstance(name, str) else name[1] for name in one.names}
    return names
