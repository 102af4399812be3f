"""The commands; installed as the package `tff_adaptive_scripts`."""
