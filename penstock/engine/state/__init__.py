"""State as sorted, immutable Arrow runs: storing, searching and merging them. No Spark here."""
