"""Names of entries that the data of a client may have besides x, y and client."""

# The number, float32, by which the client's update is multiplied; see `ClientTraining`.
COHORT_WEIGHT = 'cohort_weight'
