"""Views of `roundtrip trace`. Each module lists its views in `COMMANDS`."""
