"""`roundtrip dev`: a browser page on which a developer calls tools and answers questions as a user would."""
