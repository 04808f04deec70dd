"""Read the tensors of GGUF and safetensors files, block by block."""
