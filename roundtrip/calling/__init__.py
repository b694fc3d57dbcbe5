"""A terminal client that answers what servers ask."""
