"""The SDK's own server classes, to which roundtrip is attached by `install()`."""
