"""Approvals: rules, the inbox, and the pages on which people decide."""
