"""`python -m demo`: the whole shop at work on one machine.  Starts everything, and ends everything that it started."""
