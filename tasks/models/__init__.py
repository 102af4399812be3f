"""The models of the tasks."""
