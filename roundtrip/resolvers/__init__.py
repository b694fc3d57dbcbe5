"""Parameters filled by functions: the markers, the plan made of them at registration, and the walk of one leg."""
