"""Conditions on the columns of a catalogue, as --where takes them.

In comes text, out comes a condition that is true, false or unknown of each row; nothing is ever run as a program.
Read parser first; terms (words, columns, literals) stand below conditions.
"""
