"""The look of question pages: colors that are legible in light and in dark, logos, and templates of authors."""

import importlib
import re
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from roundtrip import Pages, Server
from roundtrip.errors import KeysMissing
from roundtrip.ledger import SqliteLedger
from roundtrip.pages import rendering
from roundtrip.pages.forms import form_of_questions
from roundtrip.pages.rendering import PageRenderer
from roundtrip.pages.settings import PageLook, contrast_of
from tests.kit.html_forms import read_page
from tests.kit.page_calls import confirmation

PIXEL = "data:image/png;base64,iVBORw0KGgo="


def question(renderer: PageRenderer) -> str:
    form = form_of_questions({"q": confirmation("Sure?")})
    return renderer.render("question.html.j2", form=form, token="t", notice=None)


def awaiting(renderer: PageRenderer, notice: str | None) -> str:
    return renderer.render("awaiting.html.j2", groups=["finance"], seconds=10, notice=notice)


def test_contrast_is_that_of_wcag() -> None:
    known = {("#000000", "#ffffff"): 21.0, ("#777777", "#ffffff"): 4.48, ("#0000ff", "#ffffff"): 8.59}
    assert {pair: contrast_of(*pair) for pair in known} == pytest.approx(known, abs=0.01)
    assert {pair: contrast_of(*reversed(pair)) for pair in known} == pytest.approx(known, abs=0.01)


@pytest.mark.parametrize("accent", ["#000000", "#0b5cad", "#a3211b"])
def test_accent_is_legible_in_light_and_in_dark(accent: str) -> None:
    look = PageLook("Shop", accent=accent)
    style = question(PageRenderer(look))
    light, dark = (
        dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", part)) for part in style.split("prefers-color-scheme")[:2]
    )
    for colors in (light, dark):
        for paper in ("card", "page"):
            assert contrast_of(colors["accent"], colors[paper]) >= 4.5
            assert contrast_of(colors["ink"], colors[paper]) >= 7
            assert contrast_of(colors["quiet"], colors[paper]) >= 4.5
        for ink, paper in (("on-accent", "accent"), ("bad", "bad-fill"), ("bad", "card"), ("ink", "note-fill")):
            assert contrast_of(colors[ink], colors[paper]) >= 4.5
        assert contrast_of(colors["quiet"], colors["note-fill"]) >= 4.5
        assert contrast_of(colors["accent"], colors["note-fill"]) >= 4.5
        assert contrast_of(colors["edge"], colors["card"]) >= 3
    assert light["accent"] == accent
    assert dark["accent"] == look.dark_accent


WRONG: list[tuple[dict[str, str], str]] = [
    (
        {"accent": "#ff9900"},
        r"accent must have a contrast of at least 4.5 with a white page, got 2\.\d for #ff9900",
    ),
    ({"accent": "#fff"}, "accent must be a color as #rrggbb, got '#fff'"),
    ({"accent": "#000000;}</style>"}, "accent must be a color"),
    ({"accent": "#000000\n"}, "accent must be a color"),
    ({"name": " "}, "name must not be empty"),
    ({"language": 'en"'}, "language must be a tag such as 'en'"),
    ({"logo": "https://cdn.example/logo.svg"}, "logo must be a path on the pages' server"),
    ({"logo": "//cdn.example/logo.svg"}, "logo must be"),
    ({"logo": "/\\cdn.example/logo.svg"}, "logo must be"),
    ({"logo": "javascript:alert(1)"}, "logo must be"),
    ({"logo": "data:text/html;base64,PGI+"}, "logo must be"),
    ({"logo": "/logo.svg\n"}, "logo must be"),
]


def test_look_that_cannot_be_shown_is_rejected() -> None:
    for options, message in WRONG:
        with pytest.raises(ValueError, match=message):
            PageLook(**{"name": "Shop", **options})


@pytest.mark.parametrize(
    ("logo", "source"), [(None, "'none'"), ("/static/logo.svg?v=1&x=2", "'self'"), (PIXEL, "data:")]
)
def test_policy_allows_the_logo_and_no_other_image(logo: str | None, source: str) -> None:
    renderer = PageRenderer(PageLook("Shop", logo=logo, language="de"))
    assert f"; img-src {source};" in renderer.policy
    page = read_page(question(renderer))
    assert [attributes["src"] for tag, attributes in page.elements if tag == "img"] == ([logo] if logo else [])
    assert page.elements[0] == ("html", {"lang": "de"})


def test_templates_of_authors_take_the_place_of_ours(tmp_path: Path) -> None:
    (tmp_path / "base.html.j2").write_text(
        '{% extends "roundtrip/base.html.j2" %}{% block header %}<p>{{ name }} & friends</p>{% endblock %}'
    )
    (tmp_path / "page.css").write_text("\ufeff:root { --accent: {{ look.accent }}; }\r\nbody { color: red; }\r\n")
    renderer = PageRenderer(PageLook("<Shop>"), templates=tmp_path)
    html = question(renderer)
    assert "<p>&lt;Shop&gt; & friends</p>" in html
    assert "Sure?" in html
    assert "--accent: #0b5cad" in html
    assert renderer.policy != PageRenderer(PageLook("<Shop>")).policy


def test_documentation_lists_every_template() -> None:
    root = Path(rendering.__file__).parent
    page = (root.parents[1] / "docs" / "question-pages.md").read_text(encoding="utf-8")
    _, _, table = page.partition("\n| file | page |\n")
    assert set(re.findall(r"^\| `([^`]+)`", table, re.MULTILINE)) == {path.name for path in root.glob("templates/*")}


def every_page(renderer: PageRenderer) -> dict[str, str]:
    """Return each kind of page by its template."""
    moment = {"iso": "2026-01-01T00:00:00Z", "text": "2026-01-01"}
    approval = dict.fromkeys(("id", "heading", "text", "by", "tool", "caller", "who", "reason"), "x")
    approval |= {"opened": moment, "until": moment, "when": moment, "state": "pending", "tells_caller": True}
    shown: dict[str, Any] = {"reader": "fay", "path": "/approvals"}
    return {
        "question.html.j2": question(renderer),
        "working.html.j2": renderer.render("working.html.j2", seconds=3, needs_client=False, notice=None),
        "awaiting.html.j2": awaiting(renderer, None),
        "ended.html.j2": renderer.render("ended.html.j2", text="Done", is_error=False, decisions=(), notice=None),
        "closed.html.j2": renderer.render("closed.html.j2"),
        "error.html.j2": renderer.render("error.html.j2", title="Oh", text="no"),
        "unavailable.html.j2": renderer.render("unavailable.html.j2", seconds=3, sent=[("note", "x")]),
        "inbox.html.j2": renderer.render("inbox.html.j2", approvals=[approval], following=None, **shown),
        "approval.html.j2": renderer.render(
            "approval.html.j2", approval=approval, token="t", notice=None, mistake=None, reason="", **shown
        ),
    }


def test_page_of_an_approval_says_why_an_answer_was_not_taken() -> None:
    shown = awaiting(PageRenderer(PageLook("Shop")), "Nothing was sent just now.")
    assert '<p class="notice" role="status">Nothing was sent just now.</p>' in shown


def test_footer_of_the_documentation_is_on_every_page(tmp_path: Path) -> None:
    root = Path(rendering.__file__).parent
    docs = (root.parents[1] / "docs" / "question-pages.md").read_text(encoding="utf-8")
    for name, text in re.findall(r'\(folder / "([^"]+)"\)\.write_text\("""\\\n(.*?)"""\)', docs, re.DOTALL):
        (tmp_path / name).write_text(text)
    pages = every_page(PageRenderer(PageLook("Shop"), templates=tmp_path))
    files = {path.name for path in root.glob("templates/*.html.j2")}
    assert pages.keys() == files - {"base.html.j2", "fields.html.j2"}
    for page in pages.values():
        assert page.count("<footer>Questions? Call 555-0100.</footer>") == 1
    notes = {name for name, page in pages.items() if "<aside>" in page}
    assert notes == {"question.html.j2", "inbox.html.j2", "approval.html.j2"}


def test_broken_templates_are_reported(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="templates must be a folder"):
        PageRenderer(PageLook("Shop"), templates=tmp_path / "missing")
    (tmp_path / "page.css").write_text("</style><script>alert(1)</script>")
    with pytest.raises(ValueError, match=r"page\.css must not contain '<'"):
        PageRenderer(PageLook("Shop"), templates=tmp_path)


BROKEN = [
    ("question.html.j2", "{% block", r"'question\.html\.j2', line 1: "),
    ("base.html.j2", "\n{{ name | shout }}", r"'base\.html\.j2', line 2: No filter named 'shout'"),
    ("ended.html.j2", "{{ nope.x }}", r"'ended\.html\.j2' uses 'nope', which this page does not .*is_error"),
    ("ended.html.j2", '{% extends "bse.html.j2" %}', r"'ended\.html\.j2' uses 'bse\.html\.j2', which does not"),
    ("qestion.html.j2", "", r"'qestion\.html\.j2' must replace .* did you mean 'question\.html\.j2'\?"),
    ("question.html", "", r"'question\.html' must replace .* did you mean 'question\.html\.j2'\?"),
    ("old/base.html.j2", "", r"'old/base\.html\.j2' must replace .* did you mean 'base\.html\.j2'\?"),
]


def test_server_checks_its_templates(tmp_path: Path) -> None:
    for place, (name, text, message) in enumerate(BROKEN):
        folder = tmp_path / str(place)
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(text)
        settings: dict[str, Any] = {"local": True} if place == 0 else {"base_url": "https://shop.example"}
        with pytest.raises(ValueError, match=f"templates: {message}"):
            Server("shop", keys=["7f" * 32], pages=Pages(templates=folder, **settings))


def test_template_of_another_encoding_is_named(tmp_path: Path) -> None:
    (tmp_path / "ended.html.j2").write_bytes("Grüße".encode("latin-1"))
    with pytest.raises(ValueError, match=r"templates: 'ended\.html\.j2' cannot be read"):
        PageRenderer(PageLook("Shop"), templates=tmp_path)


def test_templates_may_use_others_of_their_folder(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "help.html.j2").write_text("<p>{{ name }}{% for n in range(2) %}{{ n }}{% endfor %}</p>")
    (tmp_path / "ended.html.j2").write_text('{% include "parts/help.html.j2" %}')
    (tmp_path / "README.md").write_text("{% not a template")
    renderer = PageRenderer(PageLook("Shop"), templates=tmp_path)
    assert renderer.render("ended.html.j2", text=None, is_error=False, decisions=(), notice=None) == "<p>Shop01</p>"


def test_missing_keys_name_the_option_that_needs_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROUNDTRIP_KEYS", raising=False)
    monkeypatch.delenv("ROUNDTRIP_KEY_FILE", raising=False)
    ledger = SqliteLedger(tmp_path / "ledger.db")
    with pytest.raises(KeysMissing, match=r"^pages= with a SqliteLedger needs keys="):
        Server("shop", ledger=ledger, pages=Pages(base_url="https://shop.example"))
    with pytest.raises(KeysMissing, match=r"^channels= with a SqliteLedger needs keys="):
        Server("shop", ledger=ledger, channels=["form", "model"])
    with pytest.raises(KeysMissing, match=r"^task= with a SqliteLedger needs keys="):
        Server[Any]("shop", ledger=ledger).add_tool(lambda: "", name="work", task=True)


def test_folder_of_templates_may_be_a_text(tmp_path: Path) -> None:
    (tmp_path / "closed.html.j2").write_text("mine")
    Server("shop", keys=["7f" * 32], pages=Pages(base_url="https://shop.example", templates=str(tmp_path)))
    assert Pages(base_url="https://shop.example", templates=str(tmp_path)).folder == tmp_path
    with pytest.raises(ValueError, match="templates must be a folder, got"):
        Server("shop", keys=["7f" * 32], pages=Pages(base_url="https://shop.example", templates="/nowhere"))
    wrong: Any = {"base.html.j2": ""}
    with pytest.raises(TypeError, match="templates must be the path of a folder, got dict"):
        Pages(base_url="https://shop.example", templates=wrong)


def test_login_that_is_not_async_is_rejected() -> None:
    def login(request: object) -> str:
        return f"{request}"

    with pytest.raises(TypeError, match="authenticate must be an async function, got <function"):
        Pages(base_url="https://shop.example", authenticate=cast("Any", login))


def test_without_jinja2_the_import_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    monkeypatch.delitem(sys.modules, "roundtrip.pages.rendering")
    with pytest.raises(ImportError, match=r"pip install 'mcp-roundtrip\[pages\]'"):
        importlib.import_module("roundtrip.pages.rendering")
