"""Code that the commands share: flags, settings, run folders, child processes."""
