"""Change data capture from MariaDB: a first copy of tables, and then their changes from the binary log."""
