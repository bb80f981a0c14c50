"""What everything else stands on: seeds, precision, processes, files, versions."""
