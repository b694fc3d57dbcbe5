"""Find calls among many: an SQLite file beside the transcripts has a row for each call, and the places of its lines."""
