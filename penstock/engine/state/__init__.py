"""State as sorted, immutable Arrow runs: how they are stored, searched and merged. No Spark here."""
