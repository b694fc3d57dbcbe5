"""Parameters that functions fill: the markers, the plan that registration makes from them, and running the plan on one
leg.
"""
