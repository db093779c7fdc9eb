"""The clocks of one simulated machine: monotonic time that drifts, wall time that jumps. SIM.

Machines see neither: they see `runtime.clock.SteadyClock`, the production class, on top of both.
"""

from firnline.sim.world import World

# 2026-01-01 00:00 UTC, in seconds: when every simulation begins.
EPOCH_S = 1_767_225_600
PPM = 1_000_000


class MachineClock:
    """Monotonic and wall time in seconds. `rate_ppm`: microseconds gained per second; negative: lost."""

    def __init__(self, world: World, *, rate_ppm: int = 0, offset_s: float = 0.0) -> None:
        self._world = world
        self._since_us = 0
        self._monotonic_us = 0.0
        self.rate_ppm = rate_ppm
        self.offset_s = offset_s

    def monotonic(self) -> float:
        """Seconds since some moment; never back."""
        return self._now_us() / 1e6

    def wall(self) -> float:
        """Seconds since 1970, with whatever the operator or a bad time server made of it."""
        return EPOCH_S + self.offset_s + self._now_us() / 1e6

    def wall_ms(self) -> int:
        return int(self.wall() * 1000)

    def drift(self, rate_ppm: int) -> None:
        """Run faster or slower from now on."""
        self._monotonic_us = self._now_us()
        self._since_us = self._world.now_us
        self.rate_ppm = rate_ppm

    def virtual_us(self, delay_ms: float) -> int:
        """How long this machine's `delay_ms` take in the world's microseconds."""
        return int(delay_ms * 1000 / (1 + self.rate_ppm / PPM)) + 1

    def _now_us(self) -> float:
        passed = self._world.now_us - self._since_us
        return self._monotonic_us + passed * (1 + self.rate_ppm / PPM)
