"""The paper: its numbers and claims as data, and its tables run."""
