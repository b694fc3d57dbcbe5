"""Call index: an SQLite file beside the transcripts. It contains a row for each call, and the positions of the call's
lines.
"""
