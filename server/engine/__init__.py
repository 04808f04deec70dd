"""Which token comes next, and for whom; which call comes next."""
