"""Read transcripts and tokens, and join the lines of each call."""
