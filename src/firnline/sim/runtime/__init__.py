"""What the production runtime is to a history: when bytes are read, and how long steps take. SIM."""
