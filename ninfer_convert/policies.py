"""How far the activations of a use may be quantized (container.md 2, uses), the strictest first."""

POLICIES = ("A16Only", "AllowA8", "AllowA4")
