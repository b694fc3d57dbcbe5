"""`roundtrip dev`: a browser page on which a developer calls tools and answers questions like a user."""
