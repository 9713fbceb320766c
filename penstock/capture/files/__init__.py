"""Files and stdin as a source: JSON lines or CSV. Each record is stored once, however often the input is read."""
