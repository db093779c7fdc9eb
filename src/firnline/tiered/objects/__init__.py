"""Where remote segments lie: names, and the stores that hold them."""
