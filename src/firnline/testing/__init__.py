"""A pytest plugin that gives a test its own broker process. WORLD; users may use it."""
