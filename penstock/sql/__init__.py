"""SQL, the second way to declare an app: statements become calls of the Python verbs, and so the same plan.

The path of a statement: `text` (its tokens), `program` (statements), `parse` with `reader` (into `clauses`), `select`
(what each clause means). `select` uses `scope` (names), `conditions`, `joins`, `groups`, `windows`, `top`,
`projection` and `substitute`. `create` declares. `unsupported` says what to write instead.
"""

from __future__ import annotations

from penstock.sql.program import app_name, declare_app, explain_statement, run_statement

__all__ = ["app_name", "declare_app", "explain_statement", "run_statement"]
