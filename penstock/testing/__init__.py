"""The test kit for apps: step an app by hand, move its clock, script a crash, and inspect its views and accounts.

For tests of sources: `penstock.testing.capture`. A log without files, for tests of whatever uses a log: `MemoryLog`.
"""

from penstock.testing.memory_log import MemoryLog
from penstock.testing.rig import Crash, Rig

__all__ = ["Crash", "MemoryLog", "Rig"]
