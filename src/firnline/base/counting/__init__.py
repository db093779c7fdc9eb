"""Counters and histograms that cost a request almost nothing."""
