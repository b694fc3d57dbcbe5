"""Tasks: calls whose journal is stored, so that they outlive their request and any worker continues them."""
