"""Docket: a task engine on Redis, and tool parameters that Docket dependencies fill."""
