"""What happens to a broker in the world: killed, cut off from power, out of space, misled by its operator."""
