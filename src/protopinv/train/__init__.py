"""How a bank is trained: the two passes, Adam, the guard and the only loop."""
