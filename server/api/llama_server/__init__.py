"""llama-server's routes: /completion, /infill, /embedding, /models/load, /lora-adapters."""
