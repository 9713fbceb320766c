"""What stateful nodes do with one epoch's changes in one task: functions of the changes, the state and the time."""
