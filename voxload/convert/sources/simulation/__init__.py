"""Fields of simulations of any kind: The Well, grids that Fortran wrote, the files of SDRBench and DLIO.

Read `thewell` first.
"""
