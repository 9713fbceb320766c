"""Step 3 of an epoch: what reaches the outside, and the accounts of what became of every event."""
