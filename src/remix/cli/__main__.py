"""`python -m remix.cli`."""

from remix.cli import main

main()
