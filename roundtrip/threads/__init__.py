"""Worker threads for plain functions: threads that a leg keeps, and slots that all legs share."""
