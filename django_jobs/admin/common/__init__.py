"""What the console's pages share: addresses, labels, navigation, permissions, rendering."""
