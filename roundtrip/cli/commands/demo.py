"""`roundtrip demo`: watch one call move between instances that share only a key."""

from argparse import Namespace

from roundtrip.cli.command import Command, report_errors
from roundtrip.cli.parsing import OptionsAnywhere


def _configure(parser: OptionsAnywhere) -> None:
    parser.add_switch("--ask", "answer the questions yourself")


def _run(arguments: Namespace) -> int:
    from roundtrip.client.person import PersonAtTerminal
    from roundtrip.client.terminal import Terminal
    from roundtrip.demo.fleet import InstanceFailed
    from roundtrip.demo.tour import DemoFailed, tour

    # Do not check answers in the client. The user then sees how the server asks again after an invalid answer.
    person = PersonAtTerminal(Terminal(), checks=False) if arguments.ask else None
    with report_errors(DemoFailed, InstanceFailed):
        return 0 if tour(person) else 1


COMMAND = Command(
    "Start three stateless HTTP instances of a bookshop and order a book from them. A different process serves each "
    "leg of the call, and the demo kills and restarts one process on the way. The exit code is 0 if the order was "
    "placed and every leg had its own process, and 1 if not.",
    _configure,
    run=_run,
)
