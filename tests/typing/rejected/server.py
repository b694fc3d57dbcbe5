"""Servers that a type checker rejects."""

from roundtrip import Server, Transition

Server("cinema", keys=[7])  # error: reportArgumentType
Server("cinema", keys=7)  # error: reportArgumentType
Server("cinema", principal=True)  # error: reportArgumentType
Server("cinema", key=["k" * 32])  # error: reportCallIssue


def watch(step: str) -> None: ...


Server("cinema", trace=watch)  # error: reportArgumentType


def mutate(step: Transition) -> None:
    step.round = 2  # error: reportAttributeAccessIssue


server = Server("cinema")


@server.tool(ttl="60")  # error: reportArgumentType
def book(film: str) -> str:
    return film


book(1)  # error: reportArgumentType
server.add_tool("book")  # error: reportArgumentType
server.add_tool(book, timeout="1")  # error: reportArgumentType
server.add_tool(book, colour="red")  # error: reportCallIssue
server.disable(labels={"office"})  # error: reportCallIssue
server.allow_tools(7)  # error: reportArgumentType
