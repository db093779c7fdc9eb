"""What a node logs: the form of a line, and the declaration of each."""
