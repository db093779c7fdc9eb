"""`firnline tier`: what is in the remote tier, and whether a store can hold one."""
