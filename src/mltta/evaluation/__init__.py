"""Measure methods on datasets: features kept on disk, results written as they come, tables at the end."""
