"""The demo: one order, three stateless instances that share only a key, and another one for every leg."""
