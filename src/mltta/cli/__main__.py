"""`python -m mltta.cli` is `mltta`."""

from mltta.cli import main

main()
