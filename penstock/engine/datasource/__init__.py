"""The log as a Spark data source and sink: `format("penstock")`."""
