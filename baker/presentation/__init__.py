"""Tables and plots, for the comparison report, the benchmarks and the examples."""
