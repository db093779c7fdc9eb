"""What the production runtime is to a history: when bytes are read, what a step is, and how long. SIM."""
