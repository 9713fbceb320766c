"""Files on disk: durable writes and locks, checked documents, and waiting for a file to change. No log, no apps."""
