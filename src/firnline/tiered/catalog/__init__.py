"""The catalog of a tiered partition: its format and writer, its comparison with the metadata, and repairs."""
