"""``python -m benchmarks.claims``."""

from benchmarks.claims import main

main()
