"""The environment that TensorFlow Federated 0.87.0 needs: how to make it, what it lacks."""
