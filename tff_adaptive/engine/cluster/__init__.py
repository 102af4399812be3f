"""Trains cohorts in subrounds, in this process or in the workers of a Ray cluster."""
