"""What every store can do: abstract methods, one module per kind of user."""
