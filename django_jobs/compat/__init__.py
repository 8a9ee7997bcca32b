"""Layers with the names of other task queues, for projects that move.  Nothing else in the package imports them."""
