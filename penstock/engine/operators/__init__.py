"""Stateful operators, as each task runs them: pure functions of changes, state and watermarks. No Spark here."""
