"""The core: what runs without the interpreter, in C, and how it is called."""
