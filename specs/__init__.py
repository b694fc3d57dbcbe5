"""What roundtrip promises on paper: the machine, the token, the protocol's clauses, and how they are kept true."""
