"""For tests of apps: step an app by hand, move its clock, script a crash, and look at its views and books.

For tests of sources and writers: `penstock.testing.capture`.
"""

from penstock.testing.rig import Crash, Rig

__all__ = ["Crash", "Rig"]
