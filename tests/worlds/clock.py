"""The one clock of tests."""


class FakeClock:
    """A clock that stands still until a test moves it: wall and monotonic time are the same."""

    def __init__(self, now_ms: int = 0) -> None:
        self.now_ms = now_ms

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    def monotonic(self) -> float:
        """In seconds, as `time.monotonic`."""
        return self.now_ms / 1000
