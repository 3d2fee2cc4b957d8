"""The paper's table and ablations, measured again, and a verdict on each of its claims."""
