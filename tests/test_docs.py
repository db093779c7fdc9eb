"""The documentation says what the code says."""
