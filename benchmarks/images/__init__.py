"""The best small network of a budget, on images: ours against an MLP."""
