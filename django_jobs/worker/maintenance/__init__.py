"""The maintenance process of `runworkers`: what one worker does for the whole fleet."""
