"""Questions of a body that a type checker rejects."""

from pydantic import BaseModel

from roundtrip import Context, Elicit, ElicitUrl, Sample, Server


class Seat(BaseModel):
    row: str


async def quote(film: str) -> float:
    return 9.5


ElicitUrl("Log in.")  # error: reportCallIssue
ElicitUrl("Log in.", "https://cinema.example", done="later")  # error: reportArgumentType reportCallIssue
ElicitUrl("Log in.", "https://cinema.example", 5)  # error: reportCallIssue


async def body(ctx: Context) -> None:
    outcome = await ctx.ask_outcome("seat", "Which row?", Seat)
    found = outcome.data  # error: reportAttributeAccessIssue reportAttributeAccessIssue
    seat: int = await ctx.ask("seat", "Which row?", Seat)  # error: reportAssignmentType
    size: str = await ctx.ask("sure", "Sure?", bool)  # error: reportAssignmentType
    await ctx.ask(Elicit("Which row?", Seat))  # error: reportCallIssue
    await ctx.ask("seat", "Which row?")  # error: reportArgumentType reportCallIssue
    await ctx.ask("seat", Elicit("Which row?", Seat), Seat)  # error: reportArgumentType reportCallIssue
    await ctx.ask("seat", "Which row?", Seat, atempts=2)  # error: reportCallIssue
    await ctx.ask_outcome("blurb", Sample("Praise it.", max_tokens=9))  # error: reportArgumentType reportCallIssue
    many: str = ctx.blocking.ask("count", "How many?", int)  # error: reportAssignmentType
    ctx.blocking.ask("seat", "Which row?")  # error: reportArgumentType reportCallIssue
    await ctx.ask_all([Elicit("Which row?", Seat)])  # error: reportArgumentType
    price: str = await ctx.step("quote", quote, "Solaris")  # error: reportAssignmentType
    await ctx.step("quote", quote)  # error: reportCallIssue reportCallIssue
    await ctx.step("quote", quote, 7)  # error: reportArgumentType reportCallIssue
    await ctx.sample("Praise it.", temprature=1)  # error: reportCallIssue
    sure: str = (await ctx.elicit("Sure?", bool)).action
    row = (await ctx.sample("Praise it.", result_type=Seat)).result.number  # error: reportAttributeAccessIssue
    await ctx.ask("blurb", Sample("Praise it."))  # error: reportCallIssue
    print(found, seat, size, many, price, row, sure)


def page(server: Server, ticket: str) -> None:
    # Whose ticket it is has to be said (S12).
    server.verify_ticket(ticket)  # error: reportCallIssue
