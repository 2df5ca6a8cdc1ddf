"""The names of the modules that this store replaces: code written for them changes one import."""
