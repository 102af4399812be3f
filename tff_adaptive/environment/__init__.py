"""The environment that TensorFlow Federated 0.87.0 needs: how it is made, and what to say without it."""
