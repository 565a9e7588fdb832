"""Decoding: from a chunk as stored to its bytes, without the interpreter lock.

Read codecs first: a Pipeline is a list of steps, of which each file here has one or a family. Memory is taken only
for what the data can hold (ratio), and plugins of libhdf5 run in a process of their own.
"""
