"""Simulated clusters with a tier: an object store that fails, and what must hold all the same. SIM."""
