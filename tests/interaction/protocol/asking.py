"""Ask over a transport in every way that the bookshop knows."""

from roundtrip.testing import Era
from roundtrip.testing.networks.fleet import Instance
from tests.kit.players import Person, connect, roots, sample, text_of

__all__ = ["check_asking"]


async def check_asking(target: Instance, era: Era) -> None:
    """Play a call of three kinds of questions, a call of two rounds, and a declined one."""
    title = {"title": "Neuromancer"}
    person = Person({"confirm": True}, {"confirm": True}, {"copies": 2}, "decline")
    async with connect(target, era, person, sampling_callback=sample, list_roots_callback=roots) as client:
        said = [text_of(await client.call_tool(tool, title)) for tool in ("present", "order", "order")]
    assert said[:2] == [
        "Neuromancer: True, echo: Praise Neuromancer, ['books']",
        "2 x Neuromancer, in 2-3 weeks",
    ]
    assert said[2].endswith("parameter 'backorder' could not resolve: elicitation was decline")
