"""Reading transcripts: what happened to each call, why, and ways to show it."""
