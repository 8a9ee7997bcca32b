"""What every process that runs jobs needs: database connections, forks, faults, places to die in tests."""
