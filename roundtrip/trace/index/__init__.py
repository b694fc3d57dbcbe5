"""Call index: an SQLite file beside the transcripts with a row for each call and the positions of its lines."""
