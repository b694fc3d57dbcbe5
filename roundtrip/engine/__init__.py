"""One leg of a call: restore what it remembers, resolve, and either ask or execute, in either era."""
