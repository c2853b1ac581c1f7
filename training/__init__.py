"""Training of the embedded model `mini`: gather data, train, evaluate. See README.md."""
