"""What the pages of the console share: addresses, labels, navigation, permissions, rendering."""
