"""Parameters that functions fill: the markers, the plan that registration makes from them, and the scheduler that runs
the plan on a leg.
"""
