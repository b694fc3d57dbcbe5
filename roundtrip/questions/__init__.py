"""Questions to the client: what an author writes, how the protocol shows it, how an answer becomes a value."""
