"""What callers of the store and the store share: its options, what its methods take and return, and their bounds."""
