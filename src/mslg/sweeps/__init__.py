"""A grid of runs from one recipe (rows × columns × seeds): running what is missing, and tables and curves of it."""
