"""Record calls as transcripts, read them, explain them and show them."""
