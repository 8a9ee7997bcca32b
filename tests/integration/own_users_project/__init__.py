"""A project with users of its own, and with the console but not the admin among its addresses."""
