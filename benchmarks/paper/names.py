"""How data sets are called in tables."""

NAMES = {"mnist": "MNIST", "fashion-mnist": "Fashion"}
