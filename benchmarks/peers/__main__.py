"""Show what roundtrip, the SDK and FastMCP do, row by row: `python -m benchmarks.peers [NAME ...]`.

Each row runs a server with each library in memory, calls it with an SDK client, and prints one line for each.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence

from benchmarks.peers.table import NAMES, rows_named, show, versions


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the rows, print what the libraries did, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"rows to run, by default all: {', '.join(NAMES)}")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    unknown = set(options.names) - set(NAMES)
    if unknown:
        parser.error(f"there is no row {', '.join(sorted(unknown))}; rows: {', '.join(NAMES)}")
    rows = rows_named(options.names)
    if options.json:
        shown = [{"name": row.name, "feature": row.feature, "test": row.test, **asyncio.run(show(row))} for row in rows]
        print(json.dumps({"versions": versions(), "rows": shown}, indent=2, ensure_ascii=False))
        return 0
    print("   ".join(f"{library} {version}" for library, version in versions().items()))
    for row in rows:
        print(f"\n{row.name}: {row.feature}", flush=True)
        for library, cell in asyncio.run(show(row)).items():
            print(f"  {library}: {cell}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
