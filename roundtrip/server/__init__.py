"""The server: `Server` and the handlers for its tools, prompts and resources."""
