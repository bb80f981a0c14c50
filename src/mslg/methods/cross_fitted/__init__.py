"""Cross-fitted labels: the default method."""
