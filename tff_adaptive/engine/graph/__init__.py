"""The graph engine, which runs any TFF computation as one TensorFlow function."""
