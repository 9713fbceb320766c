"""Answers are kept: the embedded view store, one SQLite file for each app. It knows neither Spark nor the flow."""
