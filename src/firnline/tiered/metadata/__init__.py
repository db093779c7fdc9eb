"""Metadata of remote segments: the records of `__remote_log_metadata`, applied and asked. PURE."""
