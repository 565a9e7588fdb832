"""The command line, one command a file.

A command is found by name in commands and loaded when it is called; start is the program, main its errors and exit
status. Help and completion load no command: they show its description, which describe writes and descriptions/ keeps.
What commands share is in options and headerless (their text becomes values) and terminal (what they print). Rooms by
family: bench, catalog, inspect (info, verify), network (train, infer, demo).
"""

INTERRUPTED = 130
"""Exit status after Ctrl-C: 128 and the signal's number, as shells have it."""
