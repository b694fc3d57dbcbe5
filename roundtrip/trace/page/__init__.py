"""HTML pages for calls: Python collects the content, and a script on the page draws it."""
