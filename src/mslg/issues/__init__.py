"""Which labels are probably wrong, what they should be, and how many there are."""
