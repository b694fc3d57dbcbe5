"""Check the templates of an author when the server is created, and not when a user opens a page."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from roundtrip.pages.jinja import Environment, TemplateNotFound, TemplateSyntaxError, meta, nodes

__all__ = ["check_templates"]

_SUFFIXES: Final = (".j2", ".jinja", ".jinja2", ".html", ".css")
"""Endings of files that are meant as templates. An editor or a version control may leave others."""
_VALUES: Final[Mapping[str, frozenset[str]]] = {
    "question.html.j2": frozenset({"form", "token", "notice"}),
    "working.html.j2": frozenset({"seconds", "notice"}),
    "awaiting.html.j2": frozenset({"groups", "seconds", "notice"}),
    "ended.html.j2": frozenset({"text", "is_error", "decisions", "notice"}),
    "closed.html.j2": frozenset(),
    "error.html.j2": frozenset({"title", "text"}),
    "unavailable.html.j2": frozenset({"seconds", "sent"}),
    "inbox.html.j2": frozenset({"approvals", "following", "reader", "path"}),
    "approval.html.j2": frozenset({"approval", "token", "notice", "mistake", "reason", "reader", "path"}),
    "page.css": frozenset(),
}
"""The values of each page, besides those of all pages."""
_SHARED: Final = frozenset({"look", "name", "style", "token_name", "decision_name"})


def check_templates(environment: Environment, folder: Path, ours: Sequence[str]) -> None:
    """Check that the templates of a folder can be read, replace others, and use values that pages have.

    Args:
        environment: Reads templates of the folder, and of the package.
        folder: The folder.
        ours: The names of the templates of the package.

    Raises:
        ValueError: One of them is invalid.
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
            f"templates: {name!r} replaces no template, and no other one uses it; did you mean {nearest[0]!r}?"
        )


def _check_template(environment: Environment, name: str, path: Path) -> set[str]:
    """Check a template, and return the names of those that it uses.

    Raises:
        ValueError: It is invalid.
    """
    try:
        tree = environment.parse(path.read_text(encoding="utf-8"), name)
        environment.get_template(name)
        used = {one for one in meta.find_referenced_templates(tree) if one is not None}
        for one in used:
            environment.get_template(one)
    except TemplateSyntaxError as error:
        raise ValueError(f"templates: {error.name or name!r}, line {error.lineno}: {error.message}") from error
    except TemplateNotFound as error:
        raise ValueError(f"templates: {name!r} uses {error.name!r}, which does not exist") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"templates: {name!r} cannot be read: {error}") from error
    # A part of pages may be used by any of them.
    given = _VALUES.get(name, frozenset[str]().union(*_VALUES.values())) | _SHARED
    unknown = sorted(meta.find_undeclared_variables(tree) - given - environment.globals.keys() - _set_in(tree))
    if unknown:
        raise ValueError(f"templates: {name!r} uses {unknown[0]!r}, which no page gives it; it has {_listed(given)}")
    return used


def _set_in(tree: nodes.Template) -> set[str]:
    """Return the names that a template sets: blocks see those that are set outside of them."""
    names = {one.name for one in tree.find_all(nodes.Name) if one.ctx == "store"}
    names |= {one.target for one in tree.find_all(nodes.Import)} | {one.name for one in tree.find_all(nodes.Macro)}
    for one in tree.find_all(nodes.FromImport):
        names |= {name if isinstance(name, str) else name[1] for name in one.names}
    return names


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))
