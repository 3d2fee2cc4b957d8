"""Numbers with their recipes: tasks, searches, records, and the paper's tables made again."""
