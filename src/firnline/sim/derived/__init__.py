"""State derived from a node: compared with the same state computed from scratch, or kept over a step. SIM."""
