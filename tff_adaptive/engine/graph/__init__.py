"""The graph engine: any TFF computation as one TensorFlow function."""
