"""The page about tools as tables: a row for each behaviour."""
