"""Features of tools in combination, in many environments: what holds of each has to hold of all together."""
