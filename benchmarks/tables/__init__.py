"""Our defaults against those of others, on public tables."""
