"""What objects say of themselves: a line or a few for a terminal, a table and a picture for a notebook.

In come names, numbers and texts, out go plain text and HTML. Nothing here reads, waits or draws with a library. Read
description.py first; table.py has the parts of HTML, grid_picture.py the picture of a sample that is cut into blocks.
"""
