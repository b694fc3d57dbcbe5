"""Hosts that are not ours, in a real browser, against servers in processes of their own."""
