"""Writing transcripts: what happens to each call, as lines of a file that many processes share."""
