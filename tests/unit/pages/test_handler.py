"""The endpoint of question pages: its headers, what it takes, and attacks on it."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from roundtrip.pages.calls import PageCalls
from roundtrip.pages.handler import Authenticate, QuestionPages
from roundtrip.pages.settings import PageLook
from tests.kit.html_forms import HtmlForm, encode, read_page
from tests.kit.page_calls import KEY, TICKET, MemoryCalls, ScriptedCall, confirmation, form, link

pytestmark = pytest.mark.anyio

BASE = "https://shop.example"
FORM = {"content-type": "application/x-www-form-urlencoded"}
OWN = {**FORM, "origin": BASE, "sec-fetch-site": "same-origin"}
ASKED = {"name": form("Your name?", {"name": {"type": "string"}}, required=["name"])}
OTHER_TICKET = "f" * 16


class Browser:
    """A browser without a window: one page with its form, and requests as they are."""

    def __init__(self, calls: PageCalls, *, base_url: str = BASE, reader: str | None = None, **options: Any) -> None:
        given: dict[str, Any] = {"keys": [KEY], **options}
        self.pages = QuestionPages(calls, base_url=base_url, look=PageLook("Shop"), **given)
        transport = httpx.ASGITransport(Starlette(routes=self.pages.routes))
        cookies = {"reader": reader} if reader is not None else {}
        self.client = httpx.AsyncClient(transport=transport, base_url=BASE, cookies=cookies)

    async def get(self, ticket: str = TICKET, **headers: str) -> httpx.Response:
        return await self.client.get(f"/ask/{ticket}", headers=headers)

    async def open(self, ticket: str = TICKET) -> HtmlForm:
        return read_page((await self.get(ticket)).text)

    async def post(self, content: Any, *, ticket: str = TICKET, headers: Mapping[str, str] = OWN) -> httpx.Response:
        return await self.client.post(f"/ask/{ticket}", content=content, headers=headers)


def call(*rounds: Any, **options: Any) -> ScriptedCall:
    return ScriptedCall(list(rounds or [ASKED]), **options)


async def reader(request: Request) -> str | None:
    return request.cookies.get("reader")


async def test_answer_is_taken_once_and_leads_back_to_the_page() -> None:
    asked = call(ASKED, ASKED, result="Hello Ada")
    browser = Browser(MemoryCalls({TICKET: asked}))
    page = (await browser.open()).fill("q0-f0", "Ada")
    taken = await browser.post(page.body())
    assert (taken.status_code, taken.headers["location"]) == (303, f"{BASE}/ask/{TICKET}")
    assert asked.answers == [{"name": {"action": "accept", "content": {"name": "Ada"}}}]
    # The question is asked once more, and needs another form.
    again = await browser.post(page.body())
    assert again.status_code == 409
    assert "the question was already answered, or it has changed." in read_page(again.text).text
    assert len(asked.answers) == 1
    await browser.post((await browser.open()).fill("q0-f0", "Ada").body())
    assert "Hello Ada" in (await browser.open()).text


async def test_mistakes_are_shown_with_their_fields() -> None:
    asked = call()
    browser = Browser(MemoryCalls({TICKET: asked}))
    answer = await browser.post((await browser.open()).body())
    page = read_page(answer.text)
    assert answer.status_code == 422
    assert asked.answers == []
    assert page.with_id("q0-f0") | {"aria-invalid": "true", "aria-describedby": "q0-f0-error"} == page.with_id("q0-f0")
    assert ("a", {"href": "#q0-f0"}) in page.elements
    assert "Error: Your name?" in page.text
    # The page with the mistakes sends answers as the first one does.
    assert (await browser.post(page.fill("q0-f0", "Ada").body())).status_code == 303


async def test_reworded_question_needs_its_own_form() -> None:
    reworded = call(ASKED)
    browser = Browser(MemoryCalls({TICKET: reworded}))
    old = (await browser.open()).fill("q0-f0", "Ada")
    reworded.rounds[0] = {"name": form("Your full name?", {"name": {"type": "string"}}, required=["name"])}
    assert (await browser.post(old.body())).status_code == 409
    assert reworded.answers == []


async def test_closed_pages_are_all_alike() -> None:
    calls = {
        "expired-expired-": call(is_expired=True),
        "foreign-foreign-": call(subject="eve"),
    }
    browser = Browser(MemoryCalls(calls), authenticate=reader, reader="ada")
    seen = [
        await browser.get(ticket) for ticket in (*calls, "unknown-unknown-", "short", "x" * 3000, "%3Cscript%3E" * 3)
    ]
    seen += [await browser.post(b"decision=answer&token=x", ticket=ticket) for ticket in (*calls, "unknown-unknown-")]
    assert {(answer.status_code, answer.text, str(answer.headers.raw)) for answer in seen} == {
        (404, seen[0].text, str(seen[0].headers.raw))
    }
    assert "There is nothing to answer here" in seen[0].text


async def test_ended_and_working_pages() -> None:
    ended = call(result="No seats\nleft", is_error=True, answers=[{}])
    working = call(is_working=True)
    browser = Browser(MemoryCalls({TICKET: ended, OTHER_TICKET: working}))
    assert "Ended without a result" in (await browser.open()).text
    page = await browser.open(OTHER_TICKET)
    assert ("meta", {"http-equiv": "refresh", "content": "1"}) in page.elements
    ended.result, ended.is_error = None, False
    assert "You can close this page" in (await browser.open()).text


async def test_every_page_has_strict_headers() -> None:
    browser = Browser(MemoryCalls({TICKET: call()}))
    page = await browser.open()
    answers = [
        await browser.get(),
        await browser.get("unknown-unknown-"),
        await browser.post(b"", headers={}),
        await browser.post(b"x", headers={**OWN, "content-type": "text/plain"}),
        await browser.post(page.body()),
        await browser.post(page.fill("q0-f0", "Ada").body()),
        await browser.get(),
    ]
    assert [answer.status_code for answer in answers] == [200, 404, 415, 415, 422, 303, 200]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; style-src 'sha256-")
        for part in ("img-src 'none'", "form-action 'self'", "frame-ancestors 'none'", "base-uri 'none'"):
            assert part in policy
        assert "script" not in policy
        assert "unsafe" not in policy
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"
        assert "set-cookie" not in answer.headers


SENT: list[tuple[Mapping[str, str], int]] = [
    (OWN, 303),
    (FORM, 303),
    ({**FORM, "origin": "null", "sec-fetch-site": "same-origin"}, 303),
    ({**FORM, "origin": "null"}, 303),
    ({**FORM, "origin": "https://evil.example"}, 403),
    ({**FORM, "origin": "http://shop.example"}, 403),
    ({**FORM, "origin": "https://shop.example.evil.example"}, 403),
    ({**FORM, "origin": BASE, "sec-fetch-site": "cross-site"}, 403),
    ({**FORM, "sec-fetch-site": "same-site"}, 403),
    ({**FORM, "sec-fetch-site": "none"}, 403),
    ({**OWN, "content-type": "text/plain"}, 415),
    ({**OWN, "content-type": "application/json"}, 415),
    ({**OWN, "content-type": "multipart/form-data; boundary=x"}, 415),
    ({**OWN, "content-type": FORM["content-type"] + "; charset=utf-16"}, 415),
    ({**OWN, "content-type": FORM["content-type"].upper() + '; Charset="UTF-8"'}, 303),
    ({**OWN, "content-encoding": "gzip"}, 415),
]


async def test_only_forms_of_the_page_itself_are_read() -> None:
    found: list[tuple[int, int]] = []
    for headers, _ in SENT:
        asked = call()
        browser = Browser(MemoryCalls({TICKET: asked}))
        page = (await browser.open()).fill("q0-f0", "Ada")
        found.append(((await browser.post(page.body(), headers=headers)).status_code, len(asked.answers)))
    assert found == [(status, int(status == 303)) for _, status in SENT]


async def test_forms_of_others_answer_nothing() -> None:
    mine, theirs = call(subject="ada"), call(subject="eve")
    calls = MemoryCalls({TICKET: mine, OTHER_TICKET: theirs})
    ada, eve = (Browser(calls, authenticate=reader, reader=name) for name in ("ada", "eve"))
    page = (await eve.open(OTHER_TICKET)).fill("q0-f0", "Eve")
    # A form of Eve, which her site sends from Ada's browser, to Eve's page and to Ada's.
    assert (await ada.post(page.body(), ticket=OTHER_TICKET)).status_code == 404
    assert (await ada.post(page.body())).status_code == 409
    theirs.subject = "ada"
    assert (await ada.post(page.body(), ticket=OTHER_TICKET)).status_code == 409
    assert (mine.answers, theirs.answers) == ([], [])


async def test_forged_token_answers_nothing() -> None:
    asked = call()
    browser = Browser(MemoryCalls({TICKET: asked}))
    forged = [
        encode([("token", token), ("decision", "answer"), ("q0-f0", "Ada")]) for token in ("", "x", "A" * 43, "ä")
    ]
    forged.append(b"decision=answer&q0-f0=Ada")
    assert [body for body in forged if (await browser.post(body)).status_code != 409] == []
    assert asked.answers == []


async def test_keys_can_be_rotated() -> None:
    asked = call()
    calls = MemoryCalls({TICKET: asked})
    page = (await Browser(calls).open()).fill("q0-f0", "Ada")
    rotated = Browser(calls, keys=[b"a newer key of the pages", KEY])
    assert (await rotated.open()).named("token")[0].value != page.named("token")[0].value
    assert (await rotated.post(page.body())).status_code == 303


async def test_changed_body_is_not_read() -> None:
    asked = call()
    browser = Browser(MemoryCalls({TICKET: asked}))
    body = (await browser.open()).fill("q0-f0", "Ada").body()
    added = [b"&q0-f0=Eve", b"&decision=decline", b"&q0-f1=x", b"&name=x", b"&q0-f0=%FF", b"&x"]
    answers = [await browser.post(body + more) for more in added]
    assert [answer.status_code for answer in answers] == [400] * len(added)
    assert [more for more, answer in zip(added, answers, strict=True) if more.decode() in answer.text] == []
    assert asked.answers == []


async def test_huge_bodies_are_not_read() -> None:
    sent = 0

    async def parts() -> AsyncIterator[bytes]:
        nonlocal sent
        yield b"q0-f0="
        while True:
            sent += 1
            yield b"x" * 1000

    asked = call()
    browser = Browser(MemoryCalls({TICKET: asked}))
    assert (await browser.post(b"x" * (256 * 1024 + 1))).status_code == 413
    assert (await browser.post(b"", headers={**OWN, "content-length": "9" * 18})).status_code == 413
    page = (await browser.open()).fill("q0-f0", "x" * 9000)
    assert (await browser.post(page.body())).status_code == 303
    # The transport of this test reads a body before the application does; a stream shows that the page stops.
    messages = parts()

    async def receive() -> Any:
        return {"type": "http.request", "body": await anext(messages), "more_body": True}

    answers: list[Any] = []

    async def send(message: Any) -> None:
        answers.append(message)

    headers = [(name.encode(), text.encode()) for name, text in OWN.items()]
    scope = {"type": "http", "method": "POST", "path": f"/ask/{TICKET}", "headers": headers, "query_string": b""}
    await Starlette(routes=browser.pages.routes)(scope, receive, send)
    assert answers[0]["status"] == 413
    assert sent == 263


async def test_addresses_come_from_the_base_alone() -> None:
    asked = call(ASKED)
    browser = Browser(MemoryCalls({TICKET: asked}), base_url="https://shop.example/mcp/")
    forged = {"host": "evil.example", "x-forwarded-host": "evil.example", "forwarded": "host=evil.example"}
    page = read_page((await browser.get(**forged)).text)
    assert "evil" not in page.text + str(page.elements)
    assert ("form", {"method": "post", "accept-charset": "utf-8"}) in page.elements
    taken = await browser.post(page.fill("q0-f0", "Ada").body(), headers={**OWN, **forged})
    assert taken.headers["location"] == f"https://shop.example/mcp/ask/{TICKET}"


async def test_query_changes_nothing() -> None:
    sure = call({"c": confirmation("Sure?")})
    for method in ("GET", "HEAD", "OPTIONS", "PUT", "DELETE"):
        address = f"/ask/{TICKET}?decision=answer"
        await Browser(MemoryCalls({TICKET: sure})).client.request(method, address, headers=OWN)
    assert sure.answers == []
    asked = call()
    browser = Browser(MemoryCalls({TICKET: asked}))
    own = (await browser.get()).text
    queries = ["?next=https://evil.example", "?token=x&decision=decline", "?q0-f0=Eve"]
    assert [query for query in queries if (await browser.get(TICKET + query)).text != own] == []
    body = read_page(own).fill("q0-f0", "Ada").body()
    taken = await browser.client.post(f"/ask/{TICKET}{'&'.join(queries)}", content=body, headers=OWN)
    assert taken.headers["location"] == f"{BASE}/ask/{TICKET}"
    assert asked.answers[0]["name"]["content"] == {"name": "Ada"}


def test_ticket_that_does_not_fit_an_address_is_rejected() -> None:
    for ticket in ("short", "x" * 3000, "a" * 16 + "\r\nSet-Cookie: a=b", "a" * 16 + "/../x", "ä" * 16):
        with pytest.raises(ValueError, match="ticket must have at least 16 characters"):
            Browser(MemoryCalls({})).pages.url(ticket)


def test_base_that_is_no_web_address_is_rejected() -> None:
    for base_url in (
        *("shop.example", "ftp://shop.example", "https://", "https://a@shop.example", "https://shop.example/?x=1"),
        *("https://shop.example/#x", "https://shop.example/\r\nX: y", "https://shop .example", ""),
    ):
        with pytest.raises(ValueError, match="base_url must be a web address"):
            Browser(MemoryCalls({}), base_url=base_url)


async def test_origin_is_written_as_browsers_write_it() -> None:
    statuses: list[int] = []
    for base_url in ("https://shop.example:443", "https://SHOP.example/x/"):
        browser = Browser(MemoryCalls({TICKET: call()}), base_url=base_url)
        statuses.append((await browser.post((await browser.open()).fill("q0-f0", "Ada").body())).status_code)
    assert statuses == [303, 303]


def test_weak_keys_are_rejected() -> None:
    weak: list[list[bytes]] = [[], [b"short"], [KEY, b""]]
    for keys in weak:
        with pytest.raises(ValueError, match="keys must have at least one key, each with at least 16 bytes"):
            Browser(MemoryCalls({}), keys=keys)


async def to_login(request: Request) -> Response:
    return RedirectResponse(f"/login?next={request.state.page_url}", 303)


@pytest.mark.parametrize(("authenticate", "status"), [(reader, 401), (to_login, 303)])
async def test_page_of_a_person_needs_a_login(authenticate: Authenticate, status: int) -> None:
    asked = call(subject="ada")
    stranger = Browser(MemoryCalls({TICKET: asked}), authenticate=authenticate)
    for answer in (await stranger.get(), await stranger.post(b"decision=answer")):
        assert answer.status_code == status
        assert "Your name?" not in answer.text
        assert answer.headers.get("location", f"/login?next={BASE}/ask/{TICKET}") == f"/login?next={BASE}/ask/{TICKET}"
    assert asked.answers == []


MARKUP = "\"'><script>alert(3)</script>"
HOSTILE = "\"'><img src=x onerror=alert(1)><script>alert(2)</script></textarea></style></title>{{7*7}}<!--\u202e\0"


def hostile_questions(text: str) -> dict[str, Any]:
    """Return questions of all kinds with a text in every place of theirs."""
    options = [{"const": text, "title": text}]
    shapes = [
        {"type": "string"},
        {"type": "string", "default": text, "maxLength": 1000},
        {"type": "string", "default": f"{text}\n{text}"},
        {"type": "string", "format": "email", "default": text},
        {"type": "string", "format": "date", "default": text},
        {"type": "string", "format": "date-time", "default": text},
        {"type": "string", "pattern": "^x", "default": text},
        {"type": "integer", "default": text},
        {"type": "boolean", "default": text},
        {"type": "string", "enum": [text], "enumNames": [text]},
        {"type": "string", "oneOf": options * 9, "default": text},
        {"type": "array", "items": {"anyOf": options}, "default": [text]},
        {"type": text, "default": {text: [text]}},
    ]
    named = {f"{text}{place}": {"title": text, "description": text, **shape} for place, shape in enumerate(shapes)}
    message = f"{text}\n{text}"
    return {
        text: form(message, named),
        "b": confirmation(message),
        "c": link(message, f"https://a.example/{text}"),
        "d": link(message, f"https://a.example/{MARKUP}"),
    }


def kinds(html: str) -> set[str]:
    """Return the kinds of elements of a page, each with each of its attributes."""
    return {f"{tag} {name}" for tag, attributes in read_page(html).elements for name in ("", *attributes)}


async def test_markup_in_any_text_stays_text() -> None:
    found: dict[str, set[str]] = {}
    for text in (HOSTILE, "calm"):
        asked = call(hostile_questions(text), result=f"{text}\n{text}")
        browser = Browser(MemoryCalls({TICKET: asked}))
        shown = await browser.get()
        page = read_page(shown.text)
        for control in page.controls:
            if control.kind in ("text", "textarea"):
                control.value = text
        wrong = await browser.post(page.body())
        assert wrong.status_code == 422
        assert (await browser.post(read_page(wrong.text).body("decline"))).status_code == 303
        ended = await browser.get()
        found[text] = kinds(shown.text) | kinds(wrong.text) | kinds(ended.text)
        for answer in (shown, wrong, ended):
            # Outside of the controls, which hold a text as it was typed.
            assert "\u202e" not in read_page(answer.text).text
            assert "49" not in read_page(answer.text).text
    assert {kind.partition(" ")[0] for kind in found[HOSTILE]} & {"script", "img", "iframe", "object", "embed"} == set()
    assert found[HOSTILE] == found["calm"]


async def test_lone_surrogates_do_not_break_a_page() -> None:
    browser = Browser(
        MemoryCalls({TICKET: call({"q": form("\ud800", {"\ud800": {"type": "string", "default": "\ud800"}})})})
    )
    assert (await browser.get()).status_code == 200
