"""The operations of a store: one line each; what it does stands where it is defined."""
