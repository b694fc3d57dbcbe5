"""Networks, honest or hostile, between a user and a server's instances."""
