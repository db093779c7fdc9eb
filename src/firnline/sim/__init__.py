"""L8: the ports of `base`, simulated. Production never imports it. SIM."""
