"""Calls as HTML pages: what they show is gathered in Python, and put on the page by a script that gets it as data."""
