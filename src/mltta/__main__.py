"""`python -m mltta` is `mltta`."""

from mltta.cli import main

main()
