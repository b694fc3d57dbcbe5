"""The Tasks extension: its methods, and notifications to clients that listen for tasks."""
