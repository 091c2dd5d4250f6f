"""Matrix products: tiles, configurations, epilogues, float8."""
