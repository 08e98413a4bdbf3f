"""`barnabas group`: a command a file; facts.py has what they ask."""
