"""The study: the paper's numbers made again, and others; ``python -m benchmarks`` runs it."""
