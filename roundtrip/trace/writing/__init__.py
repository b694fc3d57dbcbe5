"""Transcript writing: each call's history as lines in a file that several processes can share."""
