"""`roundtrip dev`: a page in the browser on which a developer calls tools, and answers as a user would."""
