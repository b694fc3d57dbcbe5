"""Attack workers and instances that share tasks: kill them, disturb updates, and compare every step with the store."""
