"""What every test shares: Hypothesis without a clock, since a kernel's first call compiles it."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("house", deadline=None)
settings.load_profile("house")
