"""`python -m demo`: the whole shop on one machine, put to work.  Starts everything, and ends all it started."""
