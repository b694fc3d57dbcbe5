"""Docket: a task engine on Redis, and tool parameters that are filled by Docket dependencies."""
