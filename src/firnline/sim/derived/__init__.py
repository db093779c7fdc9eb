"""State that follows its source by differences, against the same made anew from the source. SIM."""
