"""What `barnabas topic reassign` and `cluster reassign` share: the plan, the cluster's moves in progress, their throttle."""
