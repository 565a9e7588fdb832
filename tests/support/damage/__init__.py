"""Damaged volumes: how tiny ones of every format are made and broken, for the fault table and the fuzzer."""
