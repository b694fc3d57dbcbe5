"""The machine every call is: its states and events, one call walking them, and what it remembers."""
