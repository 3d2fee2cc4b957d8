"""This source tree against an older one: the same work, in turns."""
