"""`roundtrip trace index` and `prune`: index transcripts for fast lookups, and delete old transcripts."""

import os
import re
import sys
import time
from argparse import ArgumentTypeError, Namespace
from contextlib import closing
from typing import Final

from roundtrip.cli.command import CommandFailed, report_errors
from roundtrip.cli.parsing import OptionsAnywhere
from roundtrip.cli.trace.listing import read_age
from roundtrip.cli.trace.sources import named_files, view, warn_of_losses
from roundtrip.trace.explaining.wording import count_text, size_text
from roundtrip.trace.index.database import IndexUnusable
from roundtrip.trace.index.index import CallIndex, index_path
from roundtrip.trace.reading.pruning import IDLE_SECONDS, prune
from roundtrip.trace.reading.transcripts import NoTranscript
from roundtrip.trace.writing.operator_log import operator_log_path

_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?", re.IGNORECASE)
_UNITS: Final = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def _index(arguments: Namespace) -> int:
    names = named_files(arguments)
    path = index_path(names)
    if path is None:
        raise CommandFailed("an index covers one file or directory; name exactly one")
    count = 0
    with report_errors(NoTranscript, IndexUnusable):
        index = CallIndex(names, path)
        while number := index.read_new_lines():
            count += number
            if sys.stderr.isatty():
                print(f"\r{count_text(count, 'line')}", end="", file=sys.stderr, flush=True)
    if count and sys.stderr.isatty():
        print(file=sys.stderr)
    warn_of_losses(*index.unreadable())
    print(f"{path}: {count_text(index.count(), 'call')}, {count_text(count, 'new line')}")
    index.close()
    return 0


def _prune_options(parser: OptionsAnywhere) -> None:
    parser.add_option("--older-than", "AGE", "delete files older than this: 30d, 2026-11-01", type=read_age)
    parser.add_option("--max-size", "SIZE", "delete the oldest files until this size is left: 500M, 20G", type=_size)
    parser.add_switch("--dry-run", "only print the files that would be deleted")


def _size(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ArgumentTypeError(f"must be a size such as 500M or 20G, got {text!r}")
    return int(float(match[1]) * _UNITS[match[2].lower()])


def _prune(arguments: Namespace) -> int:
    if arguments.older_than is None and arguments.max_size is None:
        raise CommandFailed("no option selects files to delete; add --older-than 30d, --max-size 20G, or both")
    names = named_files(arguments)
    try:
        operator_log = operator_log_path(None, names, os.environ)
        pruned = prune(
            names,
            before=arguments.older_than,
            max_bytes=arguments.max_size,
            clock=time.time,
            operator_log=operator_log,
            is_rehearsal=arguments.dry_run,
        )
        print(*pruned.files, sep="\n", end="\n" if pruned.files else "")
        path = index_path(names)
        if pruned.files and not arguments.dry_run and path is not None and path.exists():
            with closing(CallIndex(names, path)) as index:
                index.refresh()
    except OSError as error:
        raise CommandFailed(f"cannot delete {str(error.filename)!r}: {error.strerror}") from error
    except (NoTranscript, IndexUnusable) as error:
        raise CommandFailed(str(error)) from error
    verb = "would be deleted" if arguments.dry_run else "deleted"
    print(f"{count_text(len(pruned.files), 'file')} of {size_text(pruned.freed)} {verb}; {size_text(pruned.kept)} kept")
    if arguments.max_size is not None and pruned.kept > arguments.max_size:
        never_deleted = "the operator log, files written in the last hour, and files that are not transcripts"
        print(f"more than {size_text(arguments.max_size)} remains; never deleted: {never_deleted}", file=sys.stderr)
        return 1
    return 0


COMMANDS: Final = {
    "index": view(
        "Create or update the index of a transcript file or directory, in an SQLite file beside it. With an index, "
        "`ls`, `show` and the other views find a call among millions at once, and keep the index up to date. It holds "
        "names and times, but no values. The transcripts remain the source of truth, so you can delete the index at "
        "any time.",
        _index,
    ),
    "prune": view(
        "Delete old transcripts: whole files, oldest first. Files written in the last "
        f"{IDLE_SECONDS / 3600:g} hour and operators.jsonl are never deleted. The exit code is 1 if more than "
        "--max-size remains.",
        _prune,
        options=_prune_options,
    ),
}
