"""Answers are kept: reading views from what the engine has committed, and targets outside of the log."""
