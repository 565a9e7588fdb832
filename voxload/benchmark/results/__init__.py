"""Results for people: figures with units and intervals, as tables, as CSV, and compared.

In come documents. Read measures.py first. Others import measures, tables, compare and csv_rows.
"""
