"""Answers as tables of a SQLite file, for any tool that reads SQLite: the target of `sqlite:///reports.db`."""
