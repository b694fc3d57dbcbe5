"""One leg: restore what the call remembers, resolve, and either ask or execute, in either era."""
