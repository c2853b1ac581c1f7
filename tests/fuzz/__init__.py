"""Mutated files in place of everything that is read: `python -m tests.fuzz --minutes 10 --seed 0`."""
