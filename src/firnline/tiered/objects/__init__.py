"""Where remote segments lie: names, and the stores that hold them. PURE, but for the real stores."""
