"""The demo: three stateless instances that share only a key serve one order. Each leg runs in a different process."""
