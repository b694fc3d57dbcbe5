"""Write transcripts: the history of each call, as lines of a file that many processes share."""
