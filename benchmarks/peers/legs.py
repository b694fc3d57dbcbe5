"""Rows about calls with several requests: other instances, repeated requests, deploys, and tokens."""

import base64
import json
from collections.abc import Callable
from typing import Annotated, Any, Final

from fastmcp import Context as FastContext
from fastmcp import FastMCP
from fastmcp.dependencies import Depends as FastDepends
from mcp.server import MCPServer
from mcp.server.mcpserver import Elicit, Resolve
from mcp_types import InputRequiredResult
from pydantic import BaseModel

from benchmarks.peers.clients import ANN, EVE, Legs, short
from benchmarks.peers.row import Row, lacks, on, times
from benchmarks.peers.servers import answer_to, asking, fast, ours, theirs
from roundtrip import Context
from roundtrip import Resolve as OurResolve
from roundtrip.ledger import MemoryLedger
from roundtrip.testing.networks.fleet import acting_as

__all__ = ["ROWS"]


class Named(BaseModel):
    name: str


def ask_name() -> Elicit[Named]:
    return Elicit("Which name?", Named)


ADA: Final = {"name": "Ada"}


class Counted:
    """Server factories whose body counts its runs."""

    def __init__(self) -> None:
        self.runs = 0

    def on(self, server: Any, **options: Any) -> Any:
        """Register a tool that asks with a resolver."""

        @server.tool(**options)
        async def work(named: Annotated[Named, Resolve(ask_name)]) -> str:
            self.runs += 1
            return f"{named.name}, run {self.runs}"

        return server

    def on_fastmcp(self) -> Any:
        """Register a tool that asks with a guard."""
        server = fast()

        @server.tool
        async def work(ctx: FastContext) -> str | InputRequiredResult:
            name = answer_to(ctx, "name")
            if name is None:
                return asking("name", "Which name?")
            self.runs += 1
            return f"{name}, run {self.runs}"

        return server


async def resumed(make: Callable[[], Any]) -> str:
    call = Legs()
    await call.leg(make())
    text = await call.leg(make(), ADA)
    return "continues" if text == "Ada, run 1" else short(text)


async def resume_ours() -> str:
    return await resumed(lambda: Counted().on(ours()))


async def resume_sdk() -> str:
    return await resumed(lambda: Counted().on(theirs()))


async def resume_fastmcp() -> str:
    return await resumed(Counted().on_fastmcp)


async def runs_of(counted: Counted, server: Any) -> str:
    """Send a call's last request twice."""
    call = Legs()
    await call.leg(server)
    await call.leg(server, ADA)
    await call.again(server)
    return f"the body runs {times(counted.runs)}"


async def repeat_ours() -> str:
    counted = Counted()
    return await runs_of(counted, counted.on(ours()))


async def repeat_sdk() -> str:
    counted = Counted()
    return await runs_of(counted, counted.on(theirs()))


async def repeat_fastmcp() -> str:
    counted = Counted()
    return await runs_of(counted, counted.on_fastmcp())


async def once_ours() -> str:
    counted = Counted()
    text = await runs_of(counted, counted.on(ours(ledger=MemoryLedger()), exactly_once=True))
    return f"`exactly_once=True`: {text}"


async def intent_ours() -> str:
    counted = Counted()
    server = counted.on(ours(ledger=MemoryLedger()), once_per=lambda: "work", scope="service")
    for _ in range(2):
        call = Legs()
        if await call.leg(server) == "asked":
            await call.leg(server, ADA)
    return f"`once_per=`: the body runs {times(counted.runs)}"


def outcome(text: str) -> str:
    """Return in words how a leg ended that tried to cheat."""
    if text.startswith("error"):
        return "the request is rejected"
    return "the user is asked" if text == "asked" else "the body runs"


async def of_another_user(server: Any) -> str:
    call = Legs()
    with acting_as(ANN):
        await call.leg(server)
    with acting_as(EVE):
        return outcome(await call.leg(server, ADA))


async def unasked(server: Any) -> str:
    """Send an answer without its token, as if no question had been asked."""
    call = Legs()
    await call.leg(server)
    return outcome(await call.begin_with_answers(server, ADA))


async def with_other_arguments(server: Any) -> str:
    call = Legs(path="a.txt")
    await call.leg(server)
    call.arguments["path"] = "b.txt"
    return outcome(await call.leg(server, ADA))


def of_path(server: Any) -> Any:
    @server.tool()
    async def work(path: str, named: Annotated[Named, Resolve(ask_name)]) -> str:
        return path

    return server


def of_path_on_fastmcp() -> Any:
    server = fast()

    @server.tool
    async def work(path: str, ctx: FastContext) -> str | InputRequiredResult:
        return path if answer_to(ctx, "name") else asking("name", "Which name?")

    return server


class Account(BaseModel):
    owner: str


def asking_account(whose: str) -> Callable[[], Elicit[Account]]:
    def account() -> Elicit[Account]:
        return Elicit("Whose account?", Account)

    account.__doc__ = whose
    return account


def bank(server: Any, *, reordered: bool) -> Any:
    """Register a tool with two resolvers from one factory. The other build has its parameters in another order."""
    sender, receiver = asking_account("sender"), asking_account("receiver")

    def ask_sure(
        source: Annotated[Account, Resolve(sender)], target: Annotated[Account, Resolve(receiver)]
    ) -> Elicit[Named]:
        return Elicit("Sure?", Named)

    def ask_sure_reordered(
        target: Annotated[Account, Resolve(receiver)], source: Annotated[Account, Resolve(sender)]
    ) -> Elicit[Named]:
        return Elicit("Sure?", Named)

    ask = ask_sure_reordered if reordered else ask_sure
    ask.__name__ = ask.__qualname__ = "ask_sure"

    async def work(
        source: Annotated[Account, Resolve(sender)],
        target: Annotated[Account, Resolve(receiver)],
        sure: Annotated[Named, Resolve(ask)],
    ) -> str:
        return f"from {source.owner} to {target.owner}"

    async def work_reordered(
        target: Annotated[Account, Resolve(receiver)],
        source: Annotated[Account, Resolve(sender)],
        sure: Annotated[Named, Resolve(ask)],
    ) -> str:
        return f"from {source.owner} to {target.owner}"

    server.tool(name="work")(work_reordered if reordered else work)
    return server


async def swapped(first: Any, second: Any, *, field: str = "owner") -> str:
    """Answer both questions on one build, and the last question on a build with reordered parameters."""
    call = Legs()
    await call.leg(first)
    owners = iter(("ada", "eve"))
    # Answers are sent in the order in which the first build asks: the sender first.
    await call.leg(first, lambda message: {field: next(owners)})
    text = await call.leg(second, {"name": "yes"})
    return {
        "from ada to eve": "each keeps its answer",
        "from eve to ada": "they swap their answers",
        "asked": "asks again",
    }.get(text, short(text))


async def reorder_ours() -> str:
    return await swapped(bank(ours(), reordered=False), bank(ours(), reordered=True))


async def reorder_sdk() -> str:
    return await swapped(bank(theirs(), reordered=False), bank(theirs(), reordered=True))


def guarded_bank(*, reordered: bool) -> Any:
    """Make the bank with a guard, which stores its answers under its own names."""
    server = fast()
    accounts = ("receiver", "sender") if reordered else ("sender", "receiver")

    @server.tool
    async def work(ctx: FastContext) -> str | InputRequiredResult:
        if answer_to(ctx, "sure"):
            owners = json.loads(ctx.request_state or "{}")
            return f"from {owners['sender']} to {owners['receiver']}"
        given = {account: answer_to(ctx, account) for account in accounts}
        if all(given.values()):
            return asking("sure", "Sure?", state=json.dumps(given))
        return InputRequiredResult(
            input_requests={
                key: request
                for account in accounts
                for key, request in (asking(account, "Whose account?").input_requests or {}).items()
            },
            request_state="accounts",
        )

    return server


async def reorder_fastmcp() -> str:
    found = await swapped(guarded_bank(reordered=False), guarded_bank(reordered=True), field="name")
    return f"a guard stores answers by name: {found}"


async def renamed(old: Any, new: Any) -> str:
    call = Legs()
    await call.leg(old)
    text = await call.leg(new, ADA)
    return {"Ada": "keeps the answer", "asked": "asks again"}.get(text, short(text))


def of_resolver(server: Any, marker: Any) -> Any:
    async def work(named: Annotated[Named, marker]) -> str:
        return named.name

    server.tool()(work)
    return server


def ask_full_name() -> Elicit[Named]:
    return Elicit("Which name?", Named)


async def rename_ours() -> str:
    silent = await renamed(of_resolver(ours(), OurResolve(ask_name)), of_resolver(ours(), OurResolve(ask_full_name)))
    marker = OurResolve(ask_full_name, former_names=("ask_name",))
    told = await renamed(of_resolver(ours(), OurResolve(ask_name)), of_resolver(ours(), marker))
    return f"{silent}; `former_names=`: {told}"


async def rename_sdk() -> str:
    return await renamed(of_resolver(theirs(), Resolve(ask_name)), of_resolver(theirs(), Resolve(ask_full_name)))


async def rename_fastmcp() -> str:
    def old() -> Any:
        server = fast()

        @server.tool(name="work")
        async def ask_name_and_work(ctx: FastContext) -> str | InputRequiredResult:
            return answer_to(ctx, "name") or asking("name", "Which name?")

        return server

    def new() -> Any:
        server = fast()

        @server.tool(name="work")
        async def ask_full_name_and_work(ctx: FastContext) -> str | InputRequiredResult:
            return answer_to(ctx, "name") or asking("name", "Which name?")

        return server

    return f"a guard names its question: {await renamed(old(), new())}"


class Computing:
    """Function that counts its runs, in a call with two requests."""

    def __init__(self) -> None:
        self.runs = 0

    def voucher(self) -> str:
        """Return a different text each time."""
        self.runs += 1
        return f"voucher {self.runs}"

    async def called(self, server: Any) -> str:
        """Make a call with two requests, and return how often the function ran."""
        call = Legs()
        await call.leg(server)
        text = await call.leg(server, ADA)
        if not text.startswith("voucher"):
            raise AssertionError(f"expected a voucher, got {text}")
        return f"runs {times(self.runs)}"


async def step_ours() -> str:
    computing, stepping, fixed = Computing(), Computing(), Computing()
    plain, stepped, once = ours(), ours(), ours()

    def with_marker(server: Any, marker: Any) -> Any:
        @server.tool()
        async def work(voucher: Annotated[str, marker], named: Annotated[Named, Resolve(ask_name)]) -> str:
            return voucher

        return server

    @stepped.tool()
    async def work(ctx: Context) -> str:
        voucher = await ctx.step("voucher", stepping.voucher)
        await ctx.ask("name", "Which name?", Named)
        return voucher

    runs = await computing.called(with_marker(plain, OurResolve(computing.voucher)))
    fixed_runs = await fixed.called(with_marker(once, OurResolve(fixed.voucher, remember=True)))
    return f"a resolver {runs}; `remember=True`: {fixed_runs}; `ctx.step`: {await stepping.called(stepped)}"


async def step_sdk() -> str:
    computing = Computing()
    server = theirs()

    @server.tool()
    async def work(
        voucher: Annotated[str, Resolve(computing.voucher)], named: Annotated[Named, Resolve(ask_name)]
    ) -> str:
        return voucher

    return f"a resolver {await computing.called(server)}"


async def step_fastmcp() -> str:
    computing = Computing()
    server = fast()

    @server.tool
    async def work(ctx: FastContext, voucher: str = FastDepends(computing.voucher)) -> str | InputRequiredResult:
        return voucher if answer_to(ctx, "name") else asking("name", "Which name?")

    return f"a dependency {await computing.called(server)}"


_ANSWERS: Final = ("north wall, left of the second window,", "a box of 12 green pencils, soft, no rubber", "17 Elm")
_ADDRESS: Final = "42 Rue de la Paix, third floor, at the back"


def of_four(server: Any) -> Any:
    """Register a tool that asks four questions, and a fifth after their answers."""

    def make(number: int) -> Callable[[], Elicit[Named]]:
        def ask() -> Elicit[Named]:
            return Elicit(f"Line {number}?", Named)

        ask.__name__ = ask.__qualname__ = f"ask_{number}"
        return ask

    first, second, third, fourth = (make(number) for number in range(4))

    def ask_last(
        a: Annotated[Named, Resolve(first)],
        b: Annotated[Named, Resolve(second)],
        c: Annotated[Named, Resolve(third)],
        d: Annotated[Named, Resolve(fourth)],
    ) -> Elicit[Named]:
        return Elicit("Sure?", Named)

    @server.tool()
    async def work(last: Annotated[Named, Resolve(ask_last)]) -> str:
        return last.name

    return server


def line(message: str) -> dict[str, str]:
    """Return a 40-character answer to each of the four questions."""
    texts = {"Line 0?": _ANSWERS[0], "Line 1?": _ANSWERS[1], "Line 2?": _ANSWERS[2], "Line 3?": _ADDRESS}
    return {"name": texts[message].ljust(40, ".")[:40]}


async def sized(server: Any) -> str:
    call = Legs()
    await call.leg(server)
    await call.leg(server, line)
    return f"about {round(len(call.token), -2)} characters"


async def size_ours() -> str:
    return await sized(of_four(ours()))


async def size_sdk() -> str:
    return await sized(of_four(theirs()))


async def size_fastmcp() -> str:
    server = fast()

    @server.tool
    async def work(ctx: FastContext) -> str | InputRequiredResult:
        lines = [line(f"Line {number}?")["name"] for number in range(4)]
        return asking("sure", "Sure?", state=json.dumps(lines))

    call = Legs()
    await call.leg(server)
    return f"the author's own state, here a list: about {round(len(call.token), -2)} characters"


def shows(token: str, text: str) -> bool:
    """Return True if a token shows a text without its key."""
    for start in range(min(len(token), 16)):
        part = token[start:]
        found = base64.urlsafe_b64decode(part[: len(part) // 4 * 4].replace(".", "A"))
        if text.encode() in found:
            return True
    return text in token


async def readable(server: Any) -> str:
    """Ask for a name and then for another, and look for the first in the token."""
    call = Legs()
    await call.leg(server)
    await call.leg(server, {"name": "Zora-7"})
    return "readable by its client" if shows(call.token, "Zora-7") else "not readable by its client"


def of_two(server: Any) -> Any:
    def ask_second(named: Annotated[Named, Resolve(ask_name)]) -> Elicit[Named]:
        return Elicit("Sure?", Named)

    @server.tool()
    async def work(second: Annotated[Named, Resolve(ask_second)]) -> str:
        return second.name

    return server


async def secrecy_ours() -> str:
    plain, secret = await readable(of_two(ours())), await readable(of_two(ours(encrypt=True)))
    return f"{plain}; `encrypt=True`: {secret}"


async def secrecy_sdk() -> str:
    return await readable(of_two(theirs()))


async def secrecy_fastmcp() -> str:
    server = fast()

    @server.tool
    async def work(ctx: FastContext) -> str | InputRequiredResult:
        return asking("sure", "Sure?", state=answer_to(ctx, "name")) if answer_to(ctx, "name") else asking("name", "?")

    return await readable(server)


ROWS: Final = (
    Row(
        name="resume",
        feature="Another instance with the same key gets the answer",
        test="tests/interaction/protocol/test_instances.py::test_every_leg_lands_on_another_instance",
        roundtrip=resume_ours,
        sdk=resume_sdk,
        fastmcp=resume_fastmcp,
    ),
    Row(
        name="repeat",
        feature="A client sends its last request twice",
        test="tests/interaction/testing/networks/test_sdk_facts.py::test_repeated_last_leg_runs_the_sdk_body_twice",
        roundtrip=repeat_ours,
        sdk=repeat_sdk,
        fastmcp=repeat_fastmcp,
    ),
    Row(
        name="once",
        feature="An option runs a body once even then",
        test="tests/interaction/ledger/test_exactly_once.py::test_a_body_runs_once_on_any_network",
        roundtrip=once_ours,
        sdk=lacks(MCPServer.tool, "exactly_once"),
        fastmcp=lacks(FastMCP.tool, "exactly_once"),
    ),
    Row(
        name="intent",
        feature="An option runs a repeated call's body once",
        test="tests/interaction/intents/test_intents.py::test_second_call_gets_the_result_of_the_first",
        roundtrip=intent_ours,
        sdk=lacks(MCPServer.tool, "once_per"),
        fastmcp=lacks(FastMCP.tool, "once_per"),
    ),
    Row(
        name="unasked",
        feature="The first request of a client brings an answer already",
        test="tests/interaction/questions/test_answers.py::test_unasked_answers_are_ignored",
        roundtrip=on(lambda: Counted().on(ours()), unasked),
        sdk=on(lambda: Counted().on(theirs()), unasked),
        fastmcp=on(Counted().on_fastmcp, unasked),
    ),
    Row(
        name="arguments",
        feature="The answer comes with other arguments than those of the question",
        test="tests/unit/tokens/test_binding.py::test_differences_of_two_requests_are_named",
        roundtrip=on(lambda: of_path(ours()), with_other_arguments),
        sdk=on(lambda: of_path(theirs()), with_other_arguments),
        fastmcp=on(of_path_on_fastmcp, with_other_arguments),
    ),
    Row(
        name="user",
        feature="Another user answers, with the token of the first",
        test="tests/interaction/protocol/test_principals.py::test_token_works_only_for_its_user",
        roundtrip=on(lambda: Counted().on(ours()), of_another_user),
        sdk=on(lambda: Counted().on(theirs()), of_another_user),
        fastmcp=on(Counted().on_fastmcp, of_another_user),
    ),
    Row(
        name="reorder",
        feature="A deploy reorders two parameters, whose resolvers are closures of one factory with equal messages",
        test="tests/interaction/protocol/test_redeploys.py::test_reordered_closures_with_one_wording_keep_their_answers",
        roundtrip=reorder_ours,
        sdk=reorder_sdk,
        fastmcp=reorder_fastmcp,
    ),
    Row(
        name="rename",
        feature="A deploy renames a resolver while its question is open",
        test="tests/interaction/protocol/test_redeploys.py::test_renamed_question_keeps_its_answer_through_its_former_name",
        roundtrip=rename_ours,
        sdk=rename_sdk,
        fastmcp=rename_fastmcp,
    ),
    Row(
        name="step",
        feature="A value that is computed in a call of two requests",
        test="tests/interaction/bodies/test_steps.py::test_replayed_leg_reruns_only_its_own_steps",
        roundtrip=step_ours,
        sdk=step_sdk,
        fastmcp=step_fastmcp,
    ),
    Row(
        name="size",
        feature="The token with four answers of 40 characters",
        test="tests/unit/tokens/test_tokens.py::test_a_token_is_its_payload_in_base64url_and_31_characters",
        roundtrip=size_ours,
        sdk=size_sdk,
        fastmcp=size_fastmcp,
    ),
    Row(
        name="secrecy",
        feature="Earlier answers in the token",
        test="tests/unit/tokens/test_tokens.py::test_only_a_signed_payload_is_readable_without_a_key",
        roundtrip=secrecy_ours,
        sdk=secrecy_sdk,
        fastmcp=secrecy_fastmcp,
    ),
)
