"""Pages of `roundtrip ui`. They show which of a fleet's calls are waiting or have failed, why, and what an operator can
do.
"""
