"""One leg: restore what the call remembers, resolve the parameters, and then ask or execute, in either era."""
