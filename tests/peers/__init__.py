"""Other people's programs that tests compare with: how they are fetched, started and stopped."""
