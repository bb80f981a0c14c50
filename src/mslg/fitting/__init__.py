"""One call: prepare a run, then carry it out."""
