"""Losses, metrics, training stages, replay and the learner."""
