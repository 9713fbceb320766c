"""Step 2 of an epoch: the compiled plan, its tasks, failures and dead rows."""
