"""One module for each question that a person would ask of a region; each check is a function of the snapshot."""
