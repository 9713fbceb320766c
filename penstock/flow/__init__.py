"""What the user says: streams, tables and windows, which become a plan. Plain data: no Spark, no JVM."""
