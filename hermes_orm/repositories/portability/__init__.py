"""Sessions with their transcripts, out of a store and into one."""
