"""Step 1 of an epoch: cuts, admission, watermarks, and what was observed in the log."""
