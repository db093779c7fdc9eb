"""The catalog of a tiered partition: its format, its writer, and what compares it with the metadata."""
