"""How fast it is here, against peers and against what the machine could do."""
