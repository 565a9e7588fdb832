"""Cold runs: processes that read a data set on command, and groups of processes that have little memory."""
