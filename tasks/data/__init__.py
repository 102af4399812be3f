"""Where examples come from and how they are split over clients."""
