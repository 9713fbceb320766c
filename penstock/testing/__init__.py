"""For tests of apps: step an app by hand, move its clock, script a crash, and look at its views and books."""

from penstock.testing.rig import Crash, Rig

__all__ = ["Crash", "Rig"]
