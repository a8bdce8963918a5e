"""Items from files, in the form that a trained network takes."""
