"""SQL, the second way to declare an app: statements become calls of the Python verbs, and so the same plan.

The way of a statement: `text` (tokens), `statements`, `queries` and `relations` (clauses), `select` (what each clause
means), and there `sources`, `joins`, `groups`, `ranking`, `projection`; `create` declares. `scope` knows names.
"""

from __future__ import annotations

from penstock.sql.program import app_name, declare, program

__all__ = ["app_name", "declare", "program"]
