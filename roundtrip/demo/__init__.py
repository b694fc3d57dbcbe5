"""The demo: three stateless instances, which share only a key, serve one order. A different process serves each leg."""
