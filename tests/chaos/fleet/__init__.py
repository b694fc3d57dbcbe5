"""Many calls through a proxy over a fleet whose instances are killed: what clients, bodies and ledger say of each."""
