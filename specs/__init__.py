"""Written specifications: the machine, the token and the clauses of the protocol, and the checks of them."""
