"""Worker threads for plain functions: one for a leg, and slots that all legs share."""
