"""A shop that asks by resolvers and from its body, and recorded orders."""

from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel

from roundtrip import Context, Elicit, Recorder, Resolve, Server
from roundtrip.testing import Answers, Era, User
from tests.kit.shops import KEY, Choice

ARGUMENTS: Final = {"title": "Dune"}


class Name(BaseModel):
    name: str


def shop(path: Path, *, instance: str = "one", reveal: Any = "all", **options: Any) -> Server[Any]:
    """Make an instance of a shop whose tool asks by resolvers and from its body."""
    recorder = Recorder(path, reveal=reveal, instance=instance, **options)
    server = Server[Any]("shop", keys=[KEY], build="1", trace=recorder)

    async def confirm() -> Elicit[Choice]:
        return Elicit("Sure?", Choice)

    async def name(choice: Annotated[Choice, Resolve(confirm)]) -> Elicit[Name]:
        return Elicit("For whom?", Name)

    @server.tool()
    async def order(title: str, name: Annotated[Name, Resolve(name)], ctx: Context[Any, Any]) -> str:
        await ctx.step("reserve", lambda: 17)
        await ctx.ask("gift", "A gift?", Choice)
        return f"{title} for {name.name}"

    return server


async def order(server: Server[Any], era: Era, *, gift: bool = True) -> None:
    answers: Answers = {"confirm": {"ok": True}, "name": {"name": "Ada"}, "gift": {"ok": gift}}
    await User(server, answers, era=era).call("order", ARGUMENTS)
