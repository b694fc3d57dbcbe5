"""`roundtrip demo`: watch one call hop between instances that share only a key."""

from argparse import ArgumentParser, Namespace

from roundtrip.cli.command import Command, CommandFailed

__all__ = ["COMMAND"]


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument("--ask", action="store_true", help="answer the questions yourself")


def _run(arguments: Namespace) -> int:
    from roundtrip.demo.fleet import InstanceFailed
    from roundtrip.demo.people import DemoPerson
    from roundtrip.demo.tour import CUSTOMER, DemoFailed, tour

    if arguments.ask:
        print("You are the customer. Type an answer, or 'decline' or 'cancel'.\n")
    try:
        return 0 if tour(DemoPerson() if arguments.ask else CUSTOMER) else 1
    except (DemoFailed, InstanceFailed) as error:
        raise CommandFailed(str(error)) from error


COMMAND = Command(
    description=(
        "Start three stateless HTTP instances of a bookshop and order a book from them. Every leg of the call is "
        "served by another process; one is killed and started again on the way. The exit code is 0 if the order was "
        "placed and that is what happened, 1 if not."
    ),
    configure=_configure,
    run=_run,
)
