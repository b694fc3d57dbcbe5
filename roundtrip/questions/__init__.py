"""Questions to the client: what an author writes, how the protocol shows the question, and how an answer becomes a
value.
"""
