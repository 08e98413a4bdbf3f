"""Python that computes, in a process of its own: a thread of ours that computes keeps the loop from the interpreter's lock."""
