"""Names of entries that the data of a client may have besides x, y and client."""

# The number, float32, by which the client's update is multiplied; see `ClientTraining`.
COHORT_WEIGHT = 'cohort_weight'
# The strength of the client's attack, float32; 0 for a client that does not attack.
ATTACK = 'attack'

# What a process measures of each client, in this order; NaN where it is not known.
MEASURES = (
  'is_used',
  'diverged',
  'train_loss',
  'cosine_h',
  'update_norm',
  'loss_before',
  'loss_after',
  'gradient_norm',
)
