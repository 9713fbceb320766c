"""Step 2 of an epoch: the compiled plan, its tasks, the runs of views, failures and dead rows."""
