"""Items from files and streams, for a trained network."""
