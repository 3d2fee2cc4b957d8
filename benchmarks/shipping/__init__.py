"""Models that leave Python: do they answer the same, how large are they, how fast."""
