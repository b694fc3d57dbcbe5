"""Networks between a user and the instances of a server, honest or hostile."""
