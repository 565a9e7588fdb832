"""Chunks: the chunks that a read touches, each fetched, compared with its checksum, decoded once and pasted.

What fetches a chunk comes in (ChunkedVolume), filled arrays go out. Read chunked first. Other rooms import checksums,
checksumfile, sealedparquet and storedchunks, which say what is stored.
"""
