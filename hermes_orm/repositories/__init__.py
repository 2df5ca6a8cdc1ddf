"""One module and one class per aggregate: the operations of the store."""
