"""Round the weights of layers so that their results for a calibration text change least (GPTQ)."""
