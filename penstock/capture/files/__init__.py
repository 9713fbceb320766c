"""Files and stdin as a source: JSON lines or CSV, each record once, however often the input is read."""
