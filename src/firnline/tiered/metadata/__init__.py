"""Metadata of remote segments: applies the records of `__remote_log_metadata`, and answers queries. PURE."""
