"""Views of `roundtrip trace`: each module has the `COMMANDS` of some."""
