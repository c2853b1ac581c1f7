"""Generate captions for labels: sample requests, query an engine, filter the answers."""
