"""Pages that a stdio server opens on the user's own machine."""
