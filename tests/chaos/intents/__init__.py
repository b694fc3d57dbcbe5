"""Attack tools that run once per intent: bad clients, dying processes, rotated keys and mixed versions."""
