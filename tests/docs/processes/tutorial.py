"""The tutorial's commands, run as a reader runs them beside its programs."""

from collections.abc import Sequence
from typing import Final

from tests.docs.pages import ROOT, python_blocks
from tests.docs.processes.shell import Shell, lines_of, on_a_free_port, shell_blocks

__all__ = ["PAGE", "commands", "run_commands"]

PAGE: Final = ROOT / "docs" / "tutorial.md"
ANSWERS: Final = "2\nback\n"
RESULT: Final = "Booked 2 seats for Solaris in the back row."


def commands() -> list[str]:
    return [line for block in shell_blocks(PAGE) for line in lines_of(block)]


def run_commands(shell: Shell, lines: Sequence[str]) -> None:
    """Run commands of the page; the first one makes the project, beside which the page's programs are written."""
    (first, _), *tour = python_blocks(PAGE)
    shell.run(lines[0])
    assert (shell.folder / "cinema.py").read_text().strip() == first.text.strip()
    (shell.folder / "tour.py").write_text("\n".join(block.text for block, _ in tour))
    assert shell.run("python tour.py") == "".join(f"{output}\n" for _, output in tour)
    port, text = on_a_free_port("\n".join(lines[1:]))
    served = 0
    for line in text.splitlines():
        if line.startswith("roundtrip call"):
            assert RESULT in shell.run_at_a_terminal(line, ANSWERS)
        elif line.startswith("roundtrip dev"):
            shell.open_playground(line)
        elif "roundtrip serve" in line:
            shell.stop_services()
            shell.serve(line, port)
            served += 1
        else:
            said = shell.run(line)
            assert line != "pytest" or "1 snapshot passed" in said
    assert served == 2
