"""From a plan to Spark: each node becomes a DataFrame of changes. Built once; run again in every epoch."""
