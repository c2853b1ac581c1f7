"""One page about several results: tables, per-label AP, gain by label count."""
