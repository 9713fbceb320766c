"""Types and rows: DDL text, Arrow schemas, Python values to Arrow and back, Spark's hash of keys. No files, no log."""
