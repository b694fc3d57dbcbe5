"""`roundtrip audit` as users run it on an address: options, limits, and mistakes."""

import json
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

import pytest
from starlette.types import Receive, Scope, Send

from roundtrip.cli import main
from tests.interaction.audit.wrong_servers import BindsNoUser, RightServer, SignsNothing, ValidatesNoAnswers
from tests.kit.tables import check_each
from tests.kit.threaded_servers import serve_in_thread

BOOK: Final = 'book={"film": "Dune"}'


class Counting:
    """Application that counts requests and the most at once, and notes the tools that were called."""

    def __init__(self, inner: RightServer) -> None:
        self.inner = inner
        self.requests = self.now = self.most = 0
        self.tools: set[str] = set()
        self.users: set[str] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.requests += 1
        self.now += 1
        self.most = max(self.most, self.now)
        self.users.add(headers.get("authorization", ""))
        if headers["mcp-method"] == "tools/call":
            self.tools.add(headers["mcp-name"])
        try:
            await self.inner(scope, receive, send)
        finally:
            self.now -= 1


def audit(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["audit", "--body-size", "1", *arguments])
    said = capsys.readouterr()
    return code, said.out, said.err


def finding(data: dict[str, Any], clause: str) -> str:
    return next(one["verdict"] for one in data["findings"] if one["clause"] == clause)


def test_json_and_junit_agree_on_a_wrong_server(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    junit = tmp_path / "audit.xml"
    with serve_in_thread(SignsNothing(), lifespan="off") as url:
        code, out, _ = audit(capsys, url, "--tool", BOOK, "--json", "--junit", str(junit))
    data = json.loads(out)
    assert code == 1
    assert (data["server"], data["target"], data["failed"]) == ("cinema 1", url, True)
    assert [one["clause"] for one in data["findings"] if one["verdict"] == "failed"] == ["S4.forged"]
    root = ElementTree.parse(junit).getroot()
    failures = [case.get("name") for case in root.iter("testcase") if case.find("failure") is not None]
    assert failures == ["S4.forged: A JSON state with rewritten values is rejected."]
    assert len(list(root.iter("testcase"))) == len(data["findings"])


@pytest.mark.parametrize(("options", "code"), [((), 0), (("--fail-on", "should"), 1)])
def test_level_decides_if_a_broken_should_counts(
    options: tuple[str, ...], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve_in_thread(ValidatesNoAnswers(), lifespan="off") as url:
        ended, out, _ = audit(capsys, url, "--tool", BOOK, *options)
    assert ended == code
    assert "failed  SHOULD S9.content   Answers that do not fit their form are not accepted." in out


def test_two_sets_of_headers_are_two_users(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "ada")
    app = Counting(BindsNoUser())
    with serve_in_thread(app, lifespan="off") as url:
        users = ("--header", "Authorization: Bearer ${TOKEN}", "--other-header", "Authorization: Bearer eve")
        _, out, _ = audit(capsys, url, "--tool", BOOK, *users)
    assert "failed  SHOULD S5.principal A user's state is rejected if another user sends it." in out
    assert app.users == {"Bearer ada", "Bearer eve"}
    assert "Bearer" not in out


def test_only_named_tools_are_called_and_few_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    app = Counting(RightServer())
    with serve_in_thread(app, lifespan="off") as url:
        code, out, _ = audit(capsys, url, "--tool", BOOK, "--once", "book")
    assert code == 0
    assert app.tools == {"book"}
    assert app.most <= 2
    assert f"{app.requests} requests:" in out


def test_limit_of_requests_or_time_ends_the_audit_with_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    app = Counting(RightServer())
    with serve_in_thread(app, lifespan="off") as url:
        assert audit(capsys, url, "--tool", BOOK, "--max-seconds", "0.000001")[:2] == (2, "")
        app.requests = 0
        code, out, _ = audit(capsys, url, "--tool", BOOK, "--max-requests", "20", "--json")
    data = json.loads(out)
    assert (code, app.requests, data["requests"]) == (0, 20, 20)
    assert finding(data, "S9.content") == "could not be tried"
    reasons = next(one["texts"] for one in data["findings"] if one["clause"] == "S9.content")
    assert reasons == ["the audit has sent 20 requests; see --max-requests"]


def test_arguments_and_answers_come_from_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "args.json").write_text(json.dumps({"book": {"film": "Stalker"}}))
    (tmp_path / "answers.json").write_text(json.dumps({"seat": {"row": "front"}, "snack": {"name": "nuts"}}))
    server = RightServer()
    with serve_in_thread(server, lifespan="off") as url:
        files = ("--args", str(tmp_path / "args.json"), "--answers", str(tmp_path / "answers.json"))
        assert audit(capsys, url, "--tool", "book", *files)[0] == 0
    assert any(
        text.startswith("Stalker: {'seat': {'row': 'front'}, 'snack': {'name': 'nuts'}}")
        for text in server.done.values()
    )


async def redirecting(scope: Scope, receive: Receive, send: Send) -> None:
    headers = [(b"location", b"http://127.0.0.2:9/mcp"), (b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 307, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def test_redirects_and_proxies_are_not_followed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.2:9")
    with serve_in_thread(redirecting, lifespan="off") as url:
        code, _, told = audit(capsys, url, "--tool", BOOK)
    assert code == 2
    assert "the server does not list its tools to a client on protocol revision 2026-07-28: HTTP status 307" in told


WRONG_USAGE = [
    (["http://127.0.0.1:1/mcp"], "no tool was given"),
    (["--tool", "book"], "no server was given"),
    (["http://127.0.0.1:1/mcp", "--tool", "book={"], "--tool book: the arguments are not JSON"),
    (["http://127.0.0.1:1/mcp", "--tool", "book=1"], "--tool book: the arguments must be a JSON object"),
    (["http://127.0.0.1:1/mcp", "--tool", "book", "--tool", "book"], "--tool book is given twice"),
    (["http://127.0.0.1:1/mcp", "--tool", "book", "--once", "pay"], "--once pay must also be given as a --tool"),
    (["http://127.0.0.1:1/mcp", "--tool", "book"], "no connection"),
    (["ftp://127.0.0.1/mcp", "--tool", "book"], "is not an http(s) address"),
    (["--tool", "book", "--", "no-such-program", "-x"], "cannot find the program 'no-such-program'"),
    (["http://127.0.0.1:1/mcp", "--tool", "book", "--", "python", "x.py"], "there are two servers"),
    (["no_such_module:server", "--tool", "book"], "no module named 'no_such_module'"),
    (["no_such_file.py:server", "--tool", "book"], "no file 'no_such_file.py'"),
]


def test_wrong_usage_ends_with_2_and_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    def check(arguments: list[str], told: str) -> None:
        code, out, err = audit(capsys, *arguments)
        assert (code, out) == (2, "")
        assert told in err

    check_each(WRONG_USAGE, check)


def test_tools_that_cannot_be_called_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    with serve_in_thread(RightServer(), lifespan="off") as url:
        unknown = audit(capsys, url, "--tool", "pay")
        without_film = audit(capsys, url, "--tool", "book")
    assert (unknown[0], without_film[0]) == (2, 2)
    assert "the server has no tool 'pay'; its tools: 'book', 'cancel', 'plan'" in unknown[2]
    assert "needs 'film'" in without_film[2]
