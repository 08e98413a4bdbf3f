"""`barnabas config`: a command a file; resources.py has what they share."""
