"""An app with the one job of bench.console."""
