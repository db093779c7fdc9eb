"""Object stores: one port, and what is behind it: a directory, memory, S3, Azure, Google Cloud, HDFS."""
