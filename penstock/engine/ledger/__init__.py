"""Step 4 of an epoch and its records: plans, commits, savepoints, garbage. No Spark here."""
