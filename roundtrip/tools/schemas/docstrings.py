"""Docstring sections in Google, NumPy and Sphinx style."""

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast

if TYPE_CHECKING:
    from docstring_parser import Docstring

_OTHER_GOOGLE_SECTION = re.compile(r"(?:Attributes|Except(?:ions?)?|Examples?|Raises?|Returns?|Warns?|Yields?):$")
_GOOGLE_OTHERS = ("Keyword Args", "Keyword Arguments", "Other Args", "Other Arguments", "Other Parameters")
_GOOGLE_PARAMETERS = ("Args", "Arguments", "Parameters", "Params", *_GOOGLE_OTHERS)
_PARAMETER_FIELDS = {"param", "parameter", "arg", "argument", "key", "keyword", "kwarg"}
_SPHINX_FIELD = re.compile(
    r":(param|parameter|arg|argument|key|keyword|kwarg|type|raises?|except|exception|returns?|rtype|yields?|ytype"
    r"|i?var|cvar|vartype|meta)(?:[ \t]+([^:]*?))?[ \t]*:(.*)"
)
_LAYOUT_LINE = re.compile(r"(?:[-*+•]|\d+[.)]|>>>|\.\.|\|)(?:\s|$)")
_NO_FIELD = "\0"


class _ReadDocstring(NamedTuple):
    """Docstring as parsed in one of the styles."""

    text: str
    parameters: Mapping[str, str]
    sections: int


def read_sections(text: str, names: frozenset[str]) -> tuple[str, Mapping[str, str]]:
    """Return the text above the parameters, and the descriptions of the function's parameters.

    Args:
        text: The docstring.
        names: The function's parameters.
    """
    readings: list[_ReadDocstring] = []
    for read in (_read_google, _read_numpy, _read_sphinx):
        try:
            readings.append(read("\n".join(map(str.rstrip, text.split("\n"))), names))
        except Exception:  # noqa: BLE001, S112 - a docstring is free text, which not every parser can read
            continue
    best = max(readings, key=lambda reading: (len(reading.parameters), reading.sections), default=None)
    if best is None or best.sections == 0:
        return text, {}
    return best.text, best.parameters


def _read_google(text: str, names: frozenset[str]) -> _ReadDocstring:
    from docstring_parser.google import GoogleParser, Section, SectionType

    prose, dropped = _without_other_sections(text)
    sections = [Section(title, "param", SectionType.MULTIPLE) for title in _GOOGLE_PARAMETERS]
    parsed = GoogleParser(sections).parse(_cleaned(prose))
    return _ReadDocstring(_text_above(prose, parsed), _entries(parsed, names), dropped + len(parsed.meta))


def _without_other_sections(text: str) -> tuple[str, int]:
    """Remove the Google sections that do not describe parameters. Return the remaining text and the number of removed
    sections.

    The parser fails on an entry that is not `name: text`, and drops text between two sections.
    """
    lines = text.split("\n")
    kept_lines: list[str] = []
    dropped = 0
    dropping = False
    for position, line in enumerate(lines):
        if _OTHER_GOOGLE_SECTION.match(line) and _is_indented(next(filter(None, lines[position + 1 :]), "")):
            dropping = True
            dropped += 1
        elif not (dropping and (not line or _is_indented(line))):
            dropping = False
            kept_lines.append(line)
    return "\n".join(kept_lines).rstrip(), dropped


def _read_numpy(text: str, names: frozenset[str]) -> _ReadDocstring:
    from docstring_parser.numpydoc import DEFAULT_SECTIONS, NumpydocParser, ParamSection

    # The parser would treat all text after a deprecation note as part of the note.
    known = [section for section in DEFAULT_SECTIONS if section.title != "deprecated"]
    # The parser's type hint asks for a mapping, but the parser needs a list.
    parser = NumpydocParser(cast("Any", [*known, ParamSection("Keyword Arguments", "param")]))
    titles = "|".join(re.escape(section.title) for section in known)
    # The parser only accepts an underline that is exactly as long as its title.
    even = re.sub(
        rf"^({titles})\n-{{3,}}$", lambda match: f"{match[1]}\n{'-' * len(match[1])}", text, flags=re.MULTILINE
    )
    parsed = parser.parse(_cleaned(even))
    return _ReadDocstring(_text_above(even, parsed), _entries(parsed, names), len(parsed.meta))


def _read_sphinx(text: str, names: frozenset[str]) -> _ReadDocstring:
    from docstring_parser import rest

    prose, dropped = _without_other_sections(text)
    plain = "\n".join(_plain_fields(prose.split("\n")))
    parsed = rest.parse(_cleaned(plain))
    above = _text_above(plain, parsed).replace(_NO_FIELD, "")
    return _ReadDocstring(above, _entries(parsed, names), dropped + len(parsed.meta))


def _plain_fields(lines: Iterable[str]) -> Iterable[str]:
    """Yield the lines, with Sphinx fields rewritten for the parser: parameter fields without types, and all other
    fields as `:other:`.
    """
    within = after_blank = False
    for line in lines:
        if (field := _SPHINX_FIELD.match(line)) is not None:
            within = True
            kind, about, rest = field.groups()
            about = (about or "").split()
            yield f":param {about[-1]}:{rest}" if kind in _PARAMETER_FIELDS and about else f":other:{rest}"
        elif within and after_blank and line and not _is_indented(line):
            # Text below the fields does not belong to any field.
            yield f":other: {line}"
        else:
            yield f"{_NO_FIELD}{line}" if line.startswith(":") else line
        after_blank = not line


def _cleaned(text: str) -> str:
    """Add an empty first line, so that the parser does not dedent the other lines."""
    return f"\n{text}"


def _text_above(text: str, parsed: "Docstring") -> str:
    """Return the text above the first section, with the author's layout."""
    first, rest = parsed.short_description or "", parsed.long_description
    if not rest:
        return first.rstrip()
    return text[: text.index(rest, len(first)) + len(rest)].rstrip()


def _entries(parsed: "Docstring", names: frozenset[str]) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for entry in parsed.params:
        if entry.description is None or entry.args[0] in ("attribute", "receives"):
            continue
        for name in entry.arg_name.split(","):
            plain = name.strip().strip("`").lstrip("\\*")
            description = _join_lines(entry.description.replace(_NO_FIELD, ""))
            if plain in names and description:
                found.setdefault(plain, description)
    return found


def _join_lines(entry: str) -> str:
    """Join an entry's lines, except where the layout matters (paragraphs, bullets, code)."""
    if "```" in entry:
        return entry.strip()
    lines: list[str] = []
    previous = ""
    for line in entry.strip().split("\n"):
        flows = previous and line and not _is_indented(previous) and not _is_indented(line)
        if flows and not _LAYOUT_LINE.match(line):
            lines[-1] = f"{lines[-1]} {line}"
        else:
            lines.append(line)
        previous = line
    return "\n".join(lines)


def _is_indented(line: str) -> bool:
    return line[:1].isspace()
