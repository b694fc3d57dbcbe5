"""Attack a fleet behind a proxy: make many calls, kill instances, and check clients, bodies and ledger."""
