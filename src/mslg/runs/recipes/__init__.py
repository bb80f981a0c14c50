"""Settings of whole runs, as TOML files."""
