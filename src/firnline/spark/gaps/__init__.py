"""Which offsets a read does not give, and why: the table `gaps` and the option `onGap`. SPARK."""
