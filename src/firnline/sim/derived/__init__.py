"""Compare state that is updated incrementally with the same state computed from scratch. SIM."""
