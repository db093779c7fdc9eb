"""L4: decides changes of the cluster; returns records and a response, replay applies them. PURE."""
