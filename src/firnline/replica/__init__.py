"""L4: one partition's replica on this broker: leader's view, high watermark, who waits for it. PURE."""
