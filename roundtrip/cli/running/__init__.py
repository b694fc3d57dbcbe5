"""Work of the commands. A module is loaded when its command runs, and so after its arguments are read."""
