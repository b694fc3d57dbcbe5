"""The documentation site has every page and every public name, works without other hosts, and has no broken link.

`.ci/run` builds the site for every change, which checks its links.
"""

import re
from importlib import import_module
from pathlib import Path

import pytest
from starlette.staticfiles import StaticFiles

from docs.site import LINK, REFERENCE, broken_links, build, listed_pages
from tests.browser.conftest import Tab
from tests.browser.hosting import hosted_in_a_thread
from tests.docs.pages import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build(folder, "0.10.0")
    return folder / "0.10.0"


def test_every_page_is_listed_and_built(site: Path) -> None:
    listed = {one.path for one in listed_pages()}
    assert {path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/*.md")} - listed == {"docs/README.md"}
    for path in listed:
        page = site / path.removesuffix(".md")
        assert (page / "index.html").is_file(), path
        assert (page / "index.md").read_text().startswith("# "), path
    of_programs = (site / "llms.txt").read_text()
    pages = {page.relative_to(site).as_posix() for page in site.rglob("index.md")}
    assert {"index.md", "CHANGELOG/index.md", "specs/token/index.md"} <= pages
    assert {page for page in pages if of_programs.count(f"]({page})") != 1} == set()


INHERITED = {"roundtrip": ["Context.ask", "Context.step", "Context.sleep", "Server.tool", "Server.signal"]}


@pytest.mark.parametrize("module", REFERENCE)
def test_reference_has_every_public_and_inherited_name_and_no_inner_one(site: Path, module: str) -> None:
    page = (site / "reference" / module / "index.html").read_text()
    markdown = (site / "reference" / module / "index.md").read_text()
    names = [*import_module(module).__all__, *INHERITED.get(module, [])]
    # A function that is called like its module has both names.
    missing = [name for name in names if not re.search(rf'id="{re.escape(f"{module}.{name}")}(\.{name})?"', page)]
    assert not missing
    assert [name for name in names if not re.search(rf"^###? {re.escape(name)}$", markdown, re.MULTILINE)] == []
    assert 'id="roundtrip.Server.internals"' not in page


def test_links_of_markdown_lead_to_markdown(site: Path) -> None:
    broken = [
        f"{page.relative_to(site)}: {target}"
        for page in site.rglob("index.md")
        for _, _, target in LINK.findall(re.sub(r"(?s)```.*?```|`[^`\n]*`", "", page.read_text()))
        if ":" not in target and not target.startswith("#") and not (page.parent / target.partition("#")[0]).is_file()
    ]
    assert broken == []


def test_broken_links_are_found(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "index.html").write_text(
        '<h1 id="x"></h1><a href="../b/#y">b</a><a href="../c/">c</a><a href="#x">'
    )
    (tmp_path / "b.html").write_text(
        '<img src="no.png"><a href="a/#x">a</a><a href="a/#z">a</a><a href="https://c.d/">'
    )
    assert list(broken_links(tmp_path)) == [
        "a/index.html: ../b/#y",
        "a/index.html: ../c/",
        "b.html: no.png",
        "b.html: a/#z has no such heading",
    ]


def test_reader_searches_and_copies_a_page(tab: Tab, site: Path) -> None:
    page = tab.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    with hosted_in_a_thread(StaticFiles(directory=site.parent, html=True)) as address:
        page.goto(address)
        page.wait_for_url(f"{address}/0.10.0/")
        page.get_by_role("button", name="Copy as Markdown").click()
        page.get_by_role("button", name="Copied").wait_for()
        assert page.evaluate("navigator.clipboard.readText()").startswith("# roundtrip\n")
        page.keyboard.press("Control+k")
        page.keyboard.type("continue_call")
        page.get_by_role("link", name="Question pages").first.wait_for()
        assert all(request.startswith(address) for request in tab.requests)
        page.goto("about:blank")
