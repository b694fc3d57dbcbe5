"""Command implementations. Each module is imported only when its command runs."""
