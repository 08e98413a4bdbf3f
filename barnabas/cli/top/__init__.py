"""`barnabas top`: what a cluster does just now."""
