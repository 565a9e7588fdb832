"""Storage: files that this machine sees.

A path comes in; ranges of bytes go out, and what tells the file from itself once it was written anew. Read file
first. Other rooms import file (direct reads), locality (mounts) and traversal (paths that a file names).
"""
