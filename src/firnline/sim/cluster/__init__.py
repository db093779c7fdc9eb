"""Simulated clusters: brokers, controllers, producers, consumers, and an administrator. SIM."""
