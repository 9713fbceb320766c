"""Answers in tables of a SQLite file, for any tool that opens SQLite: the target of `sqlite:///reports.db`."""
