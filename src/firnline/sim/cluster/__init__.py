"""Whole clusters in the simulated world: brokers, controllers, producers, consumers, admin churn. SIM."""
