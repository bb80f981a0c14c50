"""The pages of docs/results, one file each; `benchmarks/results_pages.py` writes them."""
