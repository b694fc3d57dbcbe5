"""Every way through a tool's questions, each gone as a call of its own."""
