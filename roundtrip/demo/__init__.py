"""The demo: one order, served by three stateless instances that share only a key, each leg by another process."""
