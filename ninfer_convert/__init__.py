"""Convert safetensors and GGUF checkpoints into `.ninfer` artifacts, exact to the bit."""

__version__ = "0.1.0"
