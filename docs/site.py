"""Build the documentation site: `python -m docs.site FOLDER` (it needs the extra `site`).

The pages are the Markdown files of the repository, in their folders, so that they read the same there and here. The
reference is made from docstrings. The builder is Zensical, the successor of Material for MkDocs by its authors: it
needs no server or service, searches in the browser, and reads docstrings by mkdocstrings as MkDocs did.

FOLDER gets a folder for the version, and the list of all versions in it. The build fails if a link leads nowhere.
"""

import argparse
import ast
import functools
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple, cast
from urllib.parse import unquote, urlsplit

import griffe

__all__ = ["build"]

ROOT: Final = Path(__file__).resolve().parents[1]
PAGES: Final = ("*.md", "docs/*.md", "specs/*.md", "examples/*/README.md")
ASSETS: Final = ("docs/images/*", "LICENSE", "specs/*.json", "specs/vectors/*", "examples/*.py", "examples/*/*")
REFERENCE: Final[Mapping[str, str]] = {
    "roundtrip": "Servers, tools and questions",
    "roundtrip.errors": "Errors",
    "roundtrip.ledger": "Ledgers",
    "roundtrip.install": "Servers of the SDK",
    "roundtrip.fastmcp": "Servers of FastMCP",
    "roundtrip.serverless": "Serverless functions",
    "roundtrip.tracing": "Tracers",
    "roundtrip.testing": "The testing kit",
}
"""The public modules, and the titles of their pages."""
INNER: Final = "internals"
"""The attribute of `Server` for other parts of the package. It is no part of the API."""
ROW: Final = re.compile(r"^\| \[(?P<title>[^\]]+)\]\((?P<page>[^)#]+\.md)\) \| (?P<about>.+) \|$", re.MULTILINE)
LINK: Final = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
FEATURES: Final = (
    "content.code.copy",
    "navigation.footer",
    "navigation.indexes",
    "navigation.sections",
    "navigation.top",
    "search.highlight",
    "toc.follow",
)

PALETTES: Final = [
    {"media": media, "scheme": scheme, "toggle": {"icon": f"lucide/{icon}", "name": f"Switch to {following}"}}
    for media, scheme, icon, following in (
        ("(prefers-color-scheme)", "default", "sun-moon", "light mode"),
        ("(prefers-color-scheme: light)", "default", "sun", "dark mode"),
        ("(prefers-color-scheme: dark)", "slate", "moon", "the system's mode"),
    )
]


class Listed(NamedTuple):
    """A page in the list of all pages."""

    section: str
    path: str
    title: str
    about: str


def listed_pages() -> list[Listed]:
    """Return the pages that docs/README.md lists, by their sections."""
    found: list[Listed] = []
    for part in (ROOT / "docs/README.md").read_text(encoding="utf-8").split("\n## ")[1:]:
        section, _, rows = part.partition("\n")
        for row in ROW.finditer(rows):
            path = (ROOT / "docs" / row["page"]).resolve().relative_to(ROOT).as_posix()
            found.append(Listed(section, path, row["title"], _plain(row["about"])))
    return found


def _plain(text: str) -> str:
    return LINK.sub(r"\2", text).replace("`", "")


# The sources of the site.


def stage(folder: Path) -> None:
    """Copy the pages and what they show into a folder, and make the pages of the reference."""
    for pattern in (*PAGES, *ASSETS):
        for source in sorted(ROOT.glob(pattern)):
            if source.is_file() and "__pycache__" not in source.parts:
                target = folder / source.relative_to(ROOT)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
    for page in folder.rglob("*.md"):
        page.write_text(_without_outside_links(page, folder), encoding="utf-8")
    (folder / "README.md").rename(folder / "index.md")
    for module, title in REFERENCE.items():
        page = folder / "reference" / f"{module}.md"
        page.parent.mkdir(exist_ok=True)
        page.write_text(_reference_page(module, title), encoding="utf-8")
    (folder / "copy.js").write_text(COPY, encoding="utf-8")


def _without_outside_links(page: Path, folder: Path) -> str:
    """Return a page whose links lead to the site only: those to code of the repository become plain text."""

    def rewritten(found: re.Match[str]) -> str:
        image, text, target = found.groups()
        place = urlsplit(target)
        if place.scheme or not place.path or image:
            return found[0]
        target = page.parent / unquote(place.path)
        if target.resolve() == folder.resolve() / "README.md":
            return f"[{text}]({place.path.removesuffix('README.md')}index.md)"
        return found[0] if target.is_file() else text

    return LINK.sub(rewritten, page.read_text(encoding="utf-8"))


def _reference_page(module: str, title: str) -> str:
    names = sorted(_public_names(module))
    # A function that is called like its module would be taken for the module.
    own = [name for name in names if _has_own_module(module, name)]
    members = "".join(f"        - {name}\n" for name in names if name not in own)
    text = f"# {title}\n\n`{module}`\n\n::: {module}\n    options:\n      members:\n{members}"
    return text + "".join(
        f"\n::: {module}.{name}.{name}\n    options:\n      show_root_heading: true\n" for name in own
    )


def _has_own_module(module: str, name: str) -> bool:
    return ROOT.joinpath(*module.split("."), f"{name}.py").is_file()


def _public_names(module: str) -> list[str]:
    """Return the names in `__all__`, without an import: some modules need packages that the builder does not."""
    path = ROOT.joinpath(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    for statement in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
            return ast.literal_eval(statement.value)
    raise ValueError(f"{module} must have __all__")


def settings(version: str) -> dict[str, Any]:
    """Return the settings of the project for Zensical."""
    sections: dict[str, list[dict[str, str]]] = {}
    for one in listed_pages():
        sections.setdefault(one.section, []).append({one.title: one.path})
    reference = [{title: f"reference/{module}.md"} for module, title in REFERENCE.items()]
    nav: list[dict[str, Any]] = [{"roundtrip": "index.md"}, {"All pages": "docs/README.md"}]
    nav += [{section: pages} for section, pages in sections.items()]
    nav += [{"API": reference}, {"Changelog": "CHANGELOG.md"}, {"Contributing": "CONTRIBUTING.md"}]
    options = {"show_root_heading": False, "show_source": False, "docstring_section_style": "list"}
    # Most of what authors use of `Server` and `Context` is inherited.
    options |= {"inherited_members": True, "filters": ["!^_", f"!^{INNER}$"]}
    python = {"options": {**options, "preload_modules": ["mcp", "mcp_types"]}}
    return {
        "site_name": "roundtrip",
        "site_description": "Ask users questions in the middle of an MCP tool",
        "docs_dir": "pages",
        "site_dir": "site",
        "use_directory_urls": True,
        "nav": nav,
        "extra_javascript": ["copy.js"],
        "theme": {"font": False, "features": list(FEATURES), "palette": PALETTES},
        "extra": {"version": {"provider": "mike", "default": version}},
        "plugins": {"search": {}, "mkdocstrings": {"handlers": {"python": python}}},
    }


COPY: Final = """\
// A button that copies the Markdown of a page, for people who ask a model about it.
document.addEventListener("DOMContentLoaded", () => {
  const title = document.querySelector("article h1");
  if (!title) {
    return;
  }
  const button = document.createElement("button");
  button.type = "button";
  button.className = "md-button copy-page";
  button.textContent = "Copy as Markdown";
  button.addEventListener("click", async () => {
    const answer = await fetch("index.md");
    await navigator.clipboard.writeText(await answer.text());
    button.textContent = "Copied";
  });
  title.after(button);
});
"""


def _toml(value: Any) -> str:
    """Return a value as TOML, with tables inline."""
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value).items()
        return "{ " + ", ".join(f"{json.dumps(name)} = {_toml(one)}" for name, one in members) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, cast("list[Any]", value))) + "]"
    return json.dumps(value)


# The built site.


def build(folder: Path, version: str) -> Path:
    """Build the site of a version into a folder of that name, and return it.

    Raises:
        SystemExit: The builder fails, or a link leads nowhere.
    """
    with TemporaryDirectory() as scratch:
        place = Path(scratch)
        stage(place / "pages")
        lines = [f"{name} = {_toml(value)}\n" for name, value in settings(version).items()]
        text = "".join(["[project]\n", *lines])
        (place / "zensical.toml").write_text(text, encoding="utf-8")
        command = [sys.executable, "-m", "zensical", "build", "--strict"]
        ran = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
        if ran.returncode != 0:
            sys.exit(f"zensical failed:\n{ran.stdout}{ran.stderr}")
        site = folder / version
        shutil.rmtree(site, ignore_errors=True)
        shutil.copytree(place / "site", site)
        _add_sources(place / "pages", site)
    problems = [*broken_links(site)]
    if problems:
        sys.exit("\n".join(["links that lead nowhere:", *problems]))
    _list_versions(folder, version)
    return site


def _add_sources(pages: Path, site: Path) -> None:
    """Put each page's Markdown beside it, and the list of pages for programs that read."""
    listed = {one.path for one in listed_pages()}
    others: list[str] = []
    for page in sorted(pages.rglob("*.md")):
        place = page.relative_to(pages)
        own = _folder_of(place)
        if (site / own).is_dir():
            text = page.read_text(encoding="utf-8")
            if place.parts[0] == "reference":
                text = _reference_text(place.stem, REFERENCE[place.stem])
            elif place.as_posix() not in listed:
                others.append(f"- [{text.partition(chr(10))[0].removeprefix('# ')}]({(own / 'index.md').as_posix()})")
            (site / own / "index.md").write_text(_with_links_of_site(text, place, own, pages), encoding="utf-8")
    lines = ["# roundtrip", "", "> MCP servers whose tools can ask, and resume on any instance.", ""]
    section = ""
    for one in listed_pages():
        if one.section != section:
            section = one.section
            lines += [f"## {section}", ""]
        lines.append(f"- [{one.title}]({one.path.removesuffix('.md')}/index.md): {one.about}")
    lines += ["", "## API", ""]
    lines += [f"- [{title}](reference/{module}/index.md): `{module}`" for module, title in REFERENCE.items()]
    lines += ["", "## Other pages", "", *others]
    # The site has no address of its own, without which such a map is empty.
    (site / "sitemap.xml").unlink()
    (site / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _folder_of(page: Path) -> Path:
    """Return the folder of the site in which a page is built."""
    return page.parent if page.stem in ("index", "README") else page.with_suffix("")


def _with_links_of_site(text: str, place: Path, own: Path, pages: Path) -> str:
    """Return the Markdown of a page, whose links lead to the Markdown of others from the folder in which it is."""

    def rewritten(found: re.Match[str]) -> str:
        image, words, target = found.groups()
        to = urlsplit(target)
        if to.scheme or not to.path:
            return found[0]
        there = (pages / place.parent / unquote(to.path)).resolve().relative_to(pages.resolve())
        if there.suffix == ".md":
            there = _folder_of(there) / "index.md"
        path = Path(os.path.relpath(there, own)).as_posix()
        return f"{image}[{words}]({path}{'#' + to.fragment if to.fragment else ''})"

    return LINK.sub(rewritten, text)


def _reference_text(module: str, title: str) -> str:
    """Return the API of a module as Markdown: each public name with its signature and docstring."""
    lines = [f"# {title}", "", f"`{module}`", ""]
    loaded = _package() if module == "roundtrip" else _package()[module.partition(".")[2]]
    for name in sorted(_public_names(module)):
        found = loaded[f"{name}.{name}" if _has_own_module(module, name) else name]
        try:
            lines += _described(found, name, "##")
        except griffe.AliasResolutionError:
            lines += [f"## {name}", "", "It is the SDK's.", ""]
            continue
        members: dict[str, Any] = found.all_members if found.is_class else {}
        for member, one in sorted(members.items()):
            if not member.startswith("_") and member != INNER and (one.is_function or one.is_attribute):
                lines += _described(one, f"{name}.{member}", "###")
    return "\n".join(lines)


@functools.cache
def _package() -> Any:
    """Return the package as griffe reads it, without what its classes inherit from the SDK: that takes too long."""
    loader = griffe.GriffeLoader(search_paths=[ROOT], allow_inspection=False)
    package = loader.load("roundtrip")
    loader.resolve_aliases(external=False)
    return package


def _described(one: Any, name: str, mark: str) -> list[str]:
    signature = f"```python\n{one.signature(name=name)}\n```\n" if one.is_function else ""
    docstring = inspect.cleandoc(one.docstring.value) if one.docstring is not None else ""
    return [f"{mark} {name}", "", *([signature] if signature else []), *([docstring, ""] if docstring else [])]


def _list_versions(folder: Path, version: str) -> None:
    """Write the list of versions, the newest first, which the pages show as a menu, and the way to the newest."""
    versions = sorted(
        (path.name for path in folder.iterdir() if (path / "llms.txt").exists()), key=_order, reverse=True
    )
    listed = [{"version": one, "title": one, "aliases": ["latest"] if one == versions[0] else []} for one in versions]
    (folder / "versions.json").write_text(json.dumps(listed, indent=2) + "\n", encoding="utf-8")
    newest = f"{versions[0]}/"
    to = '<!doctype html><link rel="icon" href="data:,">'
    to += f'<meta http-equiv="refresh" content="0; url={newest}"><a href="{newest}">roundtrip</a>\n'
    (folder / "index.html").write_text(to, encoding="utf-8")


def _order(version: str) -> list[tuple[int, int, str]]:
    """Return the key by which versions are sorted: numbers as numbers, and other parts as texts before them."""
    return [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in re.split(r"[.\-+]", version)]


class _Links(HTMLParser):
    """The links of one page, and its anchors."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the links and anchors of a tag."""
        for name, value in attrs:
            if value is not None and name in ("href", "src") and tag not in ("link", "form"):
                self.targets.append(value)
            if value is not None and name in ("id", "name"):
                self.anchors.add(value)


def broken_links(site: Path) -> Iterator[str]:
    """Yield the links of a built site that lead nowhere in it. Other addresses are not opened."""
    read: dict[Path, _Links] = {}
    for page in sorted(site.rglob("*.html")):
        read[page] = links = _Links()
        links.feed(page.read_text(encoding="utf-8"))
    for page, links in read.items():
        for target in links.targets:
            place = urlsplit(target)
            if place.scheme or place.netloc or page.name == "404.html":
                continue
            found = (page.parent / unquote(place.path)).resolve() if place.path else page
            found = found / "index.html" if found.is_dir() else found
            if not found.is_file():
                yield f"{page.relative_to(site)}: {target}"
            elif place.fragment and found in read and unquote(place.fragment) not in read[found].anchors:
                yield f"{page.relative_to(site)}: {target} has no such heading"


def main() -> None:
    """Build the site."""
    parser = argparse.ArgumentParser(description="Build the documentation site.")
    parser.add_argument("folder", type=Path, help="where the site of each version goes")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    parser.add_argument("--version", default=project["version"], help="default: %(default)s")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    site = build(arguments.folder, arguments.version)
    pages = len(list(site.rglob("index.html")))
    print(f"{site}: {pages} pages")


if __name__ == "__main__":
    main()
