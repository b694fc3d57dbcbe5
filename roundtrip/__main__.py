"""`python -m roundtrip` is the `roundtrip` command."""

import sys

from roundtrip.cli import main

sys.exit(main())
