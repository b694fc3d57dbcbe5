"""Tools: options, registration, argument validation and results."""
