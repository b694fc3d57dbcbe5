"""The Tasks extension: its methods, and notifications for clients that listen to tasks."""
