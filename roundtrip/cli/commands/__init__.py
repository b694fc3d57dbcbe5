"""Commands of `roundtrip`: one module each, with its `COMMAND`."""
