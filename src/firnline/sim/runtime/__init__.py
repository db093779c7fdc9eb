"""Simulates the production runtime: when bytes are read, what a step is, and how long it takes. SIM."""
