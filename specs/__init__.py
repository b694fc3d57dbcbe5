"""Written specifications (machine, token, protocol clauses), and the code that checks them."""
