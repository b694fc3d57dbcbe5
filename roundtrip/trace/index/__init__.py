"""Call index: an SQLite file beside the transcripts. It has a row for each call and the positions of its lines."""
