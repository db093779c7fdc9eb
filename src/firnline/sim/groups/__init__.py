"""Members of consumer groups in the simulated world, and what they rely on. SIM."""
