"""One training run: its settings, its folder, its checkpoints, its results and the controls beside it."""
