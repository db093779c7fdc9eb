"""Safety checks that are taken out, one at a time, to see that a test misses them."""
