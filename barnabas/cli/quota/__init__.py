"""`barnabas quota`: a command a file; entities.py has what they share."""
