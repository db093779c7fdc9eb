"""A pytest plugin: a broker of its own process for each test that asks. WORLD; users may use it."""
