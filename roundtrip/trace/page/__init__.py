"""Call pages in HTML: Python collects the content, and a script on the page draws it."""
