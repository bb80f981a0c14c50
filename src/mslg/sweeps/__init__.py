"""Many runs from one recipe: rows × columns × seeds, what is missing only, into a table beside the paper's."""
