"""Write captions for labels: what to ask, whom, and what of the answers is kept."""
