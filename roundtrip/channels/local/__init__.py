"""The page of a server on stdio, on the user's own machine."""
