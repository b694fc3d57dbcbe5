"""`roundtrip` sub-commands. Each module defines one `COMMAND`."""
