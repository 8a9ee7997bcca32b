"""Pages that are ordinary ModelAdmins."""
