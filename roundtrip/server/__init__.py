"""The server: `Server` and the handlers of its tools, prompts and resources."""
