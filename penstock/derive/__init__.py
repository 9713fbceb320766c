"""Answers are kept: views, read from what the engine has committed, and targets outside of the log."""
