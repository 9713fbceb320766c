"""Step 4 of an epoch: its records, which are plans, commits and savepoints; and garbage. No Spark here."""
