"""The environment that TensorFlow Federated 0.87.0 needs, and how it is made."""
