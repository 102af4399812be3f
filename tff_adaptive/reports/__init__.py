"""Tables and figures from the folders of runs."""
