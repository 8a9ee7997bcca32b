"""Telling the world how jobs go: log lines, signals and their receivers."""
