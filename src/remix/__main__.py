"""`python -m remix`."""

from remix.cli import main

main()
