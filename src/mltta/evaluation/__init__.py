"""Measure methods on datasets: features are cached, results written as they come, tables made at the end."""
