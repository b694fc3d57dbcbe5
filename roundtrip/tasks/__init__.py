"""The Tasks extension: its methods, and the notifications of clients that listen."""
