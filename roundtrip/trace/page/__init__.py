"""Show calls as HTML pages: Python collects the content, and a script on the page draws it."""
