"""Batches to Arrow: what one group of decompressed batches becomes. SPARK."""
