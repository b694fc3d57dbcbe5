"""Reading transcripts and tokens, and joining each call's lines."""
