"""Views of `roundtrip trace`. Each module defines one or more views in `COMMANDS`."""
