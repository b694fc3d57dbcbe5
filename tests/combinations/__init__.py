"""Features of tools in combination, in many environments: the promises of each hold for all together."""
