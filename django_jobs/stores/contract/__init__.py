"""The store contract: abstract methods, one module for each kind of caller."""
