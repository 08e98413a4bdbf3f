"""`barnabas acl`: a command a file; rules.py has what they share."""
