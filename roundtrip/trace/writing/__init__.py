"""Transcript writing: each call's history as lines in a file that many processes can share."""
