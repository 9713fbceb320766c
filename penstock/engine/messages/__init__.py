"""Changes of tables that other tools write to topics as messages in JSON: Debezium and Maxwell. Pure functions."""
