"""Question pages: they show a call's open questions as an HTML form, and read the answers that a browser sends."""
