"""python -m protopinv."""

from protopinv.cli import main

main()
