"""Faults of whole clusters that take more than one step, or an operator. SIM."""
