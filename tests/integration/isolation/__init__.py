"""No job meets another: not in its connections, its threads, its arguments, or its worker."""
