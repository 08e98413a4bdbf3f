"""Long computations run in a process of their own: in a thread they would keep the interpreter's lock from the loop."""
