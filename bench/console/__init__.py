"""The console over a million jobs; as an app, it has the one job that they are of."""
