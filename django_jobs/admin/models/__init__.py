"""The pages that are ordinary ModelAdmins."""
