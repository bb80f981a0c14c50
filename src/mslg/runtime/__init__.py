"""The runtime: seeds, precision, processes, files, versions."""
