"""How the embedded model `mini` is made: gather data, train, measure. README.md tells the recipe."""
