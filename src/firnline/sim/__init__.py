"""L8: the same ports, simulated. Production never imports it. SIM."""
