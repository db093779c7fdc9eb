"""The objects of a tier: their keys, and the stores that have them. PURE, except the real stores."""
