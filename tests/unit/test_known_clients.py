"""Look-ups of known clients, and the rules for their data file."""

from datetime import date, timedelta
from typing import Final

from roundtrip.known_clients import (
    KINDS,
    STALE_DAYS,
    KnownClient,
    Quirk,
    Support,
    all_known_clients,
    known_client,
    read_known_clients,
)
from specs.clients import stale_entries
from tests.kit.raised import raised
from tests.kit.tables import check_each

SOURCES: Final = 'sources = [{ date = 2026-01-02, url = "https://example.com", says = "it says so" }]'
ENTRY: Final = f'[[clients]]\nname = "host"\n{SOURCES}\n'


def test_version_chooses_the_entry() -> None:
    expected = {
        "2.1.332": (Support.YES, Support.YES, False),
        "2.1.281": (Support.YES, Support.NO, False),
        "2.1.237": (Support.YES, Support.NO, False),
        "2.1.87": (Support.DEPENDS, Support.NO, True),
        "2.1.87-beta.3": (Support.DEPENDS, Support.NO, True),
        "1.0.51 (build 7)": (Support.NO, Support.NO, False),
    }
    # One that cannot be read fits no range, and an endless one is cut off.
    strange = {version: known_client("claude-code", version) for version in (None, "", "next", "v", "9" * 100_000)}
    assert [version for version, client in strange.items() if client is not None] == ["9" * 100_000]
    found = {version: known_client("claude-code", version) for version in expected}
    assert {
        version: (client.form, client.tasks, Quirk.URL_UNSEEN in client.quirks)
        for version, client in found.items()
        if client is not None
    } == expected


def test_announced_name_finds_the_client() -> None:
    titles = {
        "Zed": "Zed",
        "fastmcp": "FastMCP 4.2, LangChain, Pydantic AI",
        "mcp-use": "mcp-use",
        "local-agent-mode-shop": "Claude Desktop, Code tab",
        "Visual Studio Code - Insiders": "VS Code with GitHub Copilot",
        "codex-mcp-client (via mcp-remote 0.1.37)": "OpenAI Codex",
    }
    found = {announced: known_client(announced, "1.0") for announced in titles}
    assert {announced: client.title for announced, client in found.items() if client is not None} == titles


def test_hosts_of_apps_are_known() -> None:
    versions = {"Anthropic/ClaudeAI": "1", "openai-mcp": "1", "Visual Studio Code": "1.139.1", "claude-code": "2.1.332"}
    found = {name: known_client(name, version) for name, version in versions.items()}
    yes = {name for name, client in found.items() if client is not None and client.apps is Support.YES}
    assert yes == versions.keys() - {"claude-code"}


def test_other_names_are_unknown() -> None:
    assert [name for name in ("", "zed", "Zed 2", "*", "x" * 100_000) if known_client(name)] == []


def test_overrides_win_and_can_forget_a_client() -> None:
    better = KnownClient("Zed", form=Support.YES, max_rounds=50)
    overrides = {"Zed": better, "Cline": None, "ours": KnownClient("ours")}
    assert known_client("Zed", overrides=overrides) is better
    assert known_client("Cline", overrides=overrides) is None
    assert known_client("ours", overrides=overrides) == KnownClient("ours")
    assert known_client("goose", overrides=overrides) == known_client("goose")


def test_every_entry_has_dated_sources() -> None:
    for client in all_known_clients():
        assert client.title
        assert client.sources, client.name
        for source in client.sources:
            assert date(2024, 11, 1) < source.date < date(2100, 1, 1), client.name
            assert source.url.startswith("https://"), client.name
            assert source.says, client.name
        # Newest first, as readers believe the first one.
        assert list(client.sources) == sorted(client.sources, key=lambda source: source.date, reverse=True), client.name


def test_each_entry_can_be_found() -> None:
    reachable = [
        known_client(client.name.replace("*", "x"), version)
        for client in all_known_clients()
        for version in ("2.1.332", "2.1.281", "2.1.237", "2.1.87", "1.0")
    ]
    assert set(all_known_clients()) <= set(reachable)


def test_entry_is_as_old_as_its_newest_source() -> None:
    sources = [f"{{ date = {day}, url = 'https://example.com', says = 'so' }}" for day in ("2026-01-02", "2026-03-01")]
    (client,) = read_known_clients(ENTRY.replace(SOURCES, f"sources = [{', '.join(sources)}]"))
    days = {date(2026, 3, 11): 10, date(2026, 3, 1): 0, date(2025, 1, 1): 0}
    assert (client.as_of, {day: client.age_days(day) for day in days}) == (date(2026, 3, 1), days)
    unknown = KnownClient("ours")
    assert (unknown.as_of, unknown.age_days(date(2026, 3, 1))) == (None, None)


def test_old_entries_are_listed_from_the_oldest() -> None:
    newest = max(client.as_of for client in all_known_clients() if client.as_of is not None)
    assert list(stale_entries(date(2024, 11, 1))) == []
    lines = list(stale_entries(newest + timedelta(days=STALE_DAYS + 1)))
    assert lines == sorted(lines, key=lambda line: line[:10])
    assert len(lines) == len(all_known_clients())


def test_facts_that_are_not_given_are_unknown() -> None:
    (client,) = read_known_clients(ENTRY)
    assert {getattr(client, kind) for kind in KINDS} == {Support.UNKNOWN}
    assert (client.revision, client.max_rounds, client.quirks) == (None, None, frozenset())


def test_invalid_entry_is_rejected_with_its_name() -> None:
    def check(line: tuple[str, str], complaint: str) -> None:
        error = raised(list, read_known_clients(ENTRY.replace(*line)))
        assert isinstance(error, ValueError)
        assert complaint in str(error)

    invalid = "client 'host' of the known clients is invalid"
    complaints = {
        ("sources", 'form = "maybe"\nsources'): f"{invalid}: 'maybe' is not a valid Support",
        ("sources", 'quirks = ["sulks"]\nsources'): "'sulks' is not a valid Quirk",
        ("sources", 'versions = "about 2"\nsources'): "Invalid specifier",
        ("sources", 'forms = "yes"\nsources'): "unknown keys forms",
        (SOURCES, ""): invalid,
        ("2026-01-02", '"2026-01-02"'): invalid,
    }
    check_each(complaints.items(), check)
