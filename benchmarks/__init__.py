"""Measurements that print ratios taken in one run: against the raw machine, against plain Spark, against peers."""
