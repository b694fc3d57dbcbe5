"""Output of views: styled on a terminal if rich is installed, otherwise in plain columns and lines.

Recorded text is untrusted. So every string passes through `printable`, and markup in a string is never parsed.
"""

import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, Final, TextIO, cast

from roundtrip.client.terminal import Line, Part, console_on
from roundtrip.text import columns_of, printable
from roundtrip.trace.reading.calls import SYMBOLS, Mark

if TYPE_CHECKING:
    from rich.console import Console

MARK_STYLES: Final = {
    Mark.ASKED: "cyan",
    Mark.ASKED_AGAIN: "bold yellow",
    Mark.REUSED: "green",
    Mark.PENDING: "bold magenta",
}
STATE_STYLES: Final = {
    "completed": "green",
    "failed": "bold red",
    "declined": "yellow",
    "rejected": "bold red",
    "awaiting_input": "bold magenta",
}

_ASCII_SYMBOLS: Final = {Mark.ASKED: "*", Mark.ASKED_AGAIN: "!", Mark.REUSED: "=", Mark.PENDING: "?"}
_ASCII_REPLACEMENTS: Final = str.maketrans({"→": "->", "·": "-", "…": "...", "─": "-"})
_DRAWN_CHARS: Final = "".join(SYMBOLS.values()) + "→·…─"

_COLUMN_GAP_CHARS: Final = 2
_MIN_WIDTH_CHARS: Final = 20
_MAX_DRAWN_ROWS: Final = 1000
"""Maximum number of rows in a styled table. Larger tables are printed plain, because styling is slow."""


@dataclass(frozen=True, slots=True)
class Column:
    """Table column. If the terminal is narrow, the columns with the highest `drop` are omitted first. A column whose
    `drop` is 0 is never omitted.
    """

    title: str
    right: bool = False
    drop: int = 0
    folds: bool = False
    """True if long texts are wrapped, False if they are cut."""


class Screen:
    """A view's output."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out: TextIO = out if out is not None else sys.stdout
        wrapper: object = self._out
        if isinstance(wrapper, TextIOWrapper):
            # If the encoding lacks a character, escape it instead of raising UnicodeEncodeError.
            cast("TextIOWrapper[Any]", wrapper).reconfigure(errors="backslashreplace")
        self.ascii = not _can_encode(self._out.encoding, _DRAWN_CHARS)
        width = max(_MIN_WIDTH_CHARS, shutil.get_terminal_size().columns)
        self._console = console_on(self._out, width=width) if self._out.isatty() else None

    def symbol(self, mark: Mark) -> str:
        """Return the symbol that marks a question."""
        return (_ASCII_SYMBOLS if self.ascii else SYMBOLS)[mark]

    def line(self, *parts: Part, indent: int = 0) -> None:
        """Print one line. On a terminal, wrapped text keeps the indent."""
        styled = [self._styled(part) for part in parts]
        if self._console is None:
            self._print(" " * indent + "".join(text for text, _ in styled))
            return
        from rich.padding import Padding
        from rich.text import Text

        text = Text.assemble(*styled)
        self._console.print(Padding(text, (0, 0, 0, indent)) if indent else text)

    def lines(self, lines: Iterable[Line]) -> None:
        """Print lines. Each line consists of an indent and its parts."""
        for indent, parts in lines:
            self.line(*parts, indent=indent)

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[Part]]) -> None:
        """Print a table with column titles."""
        styled = [[self._styled(cell) for cell in row] for row in rows]
        cells = [[text for text, _ in row] for row in styled]
        titles = [column.title for column in columns]
        widths = [max(map(columns_of, column)) for column in zip(titles, *cells, strict=True)]
        if self._console is None or len(rows) > _MAX_DRAWN_ROWS:
            self._plain_table(columns, [titles, *cells], widths)
            return
        self._drawn_table(self._console, columns, styled, widths)

    def gap(self) -> None:
        """Print an empty line."""
        self.line("")

    def flush(self) -> None:
        """Flush the output."""
        self._out.flush()

    def _styled(self, part: Part) -> tuple[str, str]:
        """Return a part's text in printable form, and its style."""
        text, style = (part, "") if isinstance(part, str) else part
        text = printable(text)
        return text.translate(_ASCII_REPLACEMENTS) if self.ascii else text, style

    def _print(self, line: str) -> None:
        print(line.rstrip(), file=self._out)

    def _plain_table(self, columns: Sequence[Column], rows: Sequence[Sequence[str]], widths: Sequence[int]) -> None:
        alignments = [(column.right, width) for column, width in zip(columns, widths, strict=True)]
        lines: list[str] = []
        for cells in rows:
            padded: list[str] = []
            for cell, (right, width) in zip(cells, alignments, strict=True):
                space = " " * (width - columns_of(cell))
                padded.append(space + cell if right else cell + space)
            lines.append((" " * _COLUMN_GAP_CHARS).join(padded).rstrip())
        self._print("\n".join(lines))

    def _drawn_table(
        self,
        console: "Console",
        columns: Sequence[Column],
        rows: Sequence[Sequence[tuple[str, str]]],
        widths: Sequence[int],
    ) -> None:
        from rich.table import Table
        from rich.text import Text

        def table_width(indexes: Sequence[int]) -> int:
            return sum(widths[index] + _COLUMN_GAP_CHARS for index in indexes) - _COLUMN_GAP_CHARS

        shown = list(range(len(columns)))
        for index in sorted(shown, key=lambda index: -columns[index].drop):
            if not columns[index].drop or table_width(shown) <= console.width:
                break
            shown.remove(index)
        table = Table(box=None, pad_edge=False, padding=(0, _COLUMN_GAP_CHARS, 0, 0), header_style="bold")
        for index in shown:
            column = columns[index]
            table.add_column(
                column.title,
                justify="right" if column.right else "left",
                no_wrap=not column.folds,
                overflow="fold",
            )
        for row in rows:
            table.add_row(*(Text(*row[index]) for index in shown))
        console.print(table)


def _can_encode(encoding: str | None, text: str) -> bool:
    try:
        text.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
