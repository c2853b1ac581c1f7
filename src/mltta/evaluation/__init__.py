"""Evaluate methods on datasets: features are cached, results saved as they arrive, tables made at the end."""
