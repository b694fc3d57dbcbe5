"""A fleet in one process, where one number decides order, network, clocks, deaths and faults of the store."""
