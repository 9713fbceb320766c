"""PostgreSQL as a source: its tables are copied, then followed through logical replication."""
