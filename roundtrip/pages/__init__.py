"""Question pages: show the open questions of a call as an HTML form, and read the answers that a browser sends."""
