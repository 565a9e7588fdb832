"""A server of byte ranges on loopback whose clients share one slow link: storage that can be measured from outside."""
