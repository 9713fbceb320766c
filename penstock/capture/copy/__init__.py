"""The copy of a database's tables in topics: from items of a `Database` to plain rows that the pump writes.

The main path: Copy.read -> CopiedTable.fit -> fill_unchanged -> Captured; for events of whole tables: live_keys ->
CopiedTable.delete_markers. What the copy had before is looked up in `EarlierRows`.
"""

from penstock.capture.copy.copy import Copy

__all__ = ["Copy"]
