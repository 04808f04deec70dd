"""Which token comes next, and for whom."""
