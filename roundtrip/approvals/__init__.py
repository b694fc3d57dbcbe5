"""Approvals: rules, the inbox, and the pages by which people decide."""
