"""Entry point of `python -m roundtrip`, which is the `roundtrip` command."""

import sys

from roundtrip.cli import main

sys.exit(main())
