"""Announcing what happens to jobs: log lines, signals and their receivers."""
