"""Key compaction of a log: what survives, a round over the files, the swap, and what is due."""
