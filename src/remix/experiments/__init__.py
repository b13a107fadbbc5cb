"""Runs on data sets: configurations, runs that go on after any interruption, sweeps, and comparisons."""
