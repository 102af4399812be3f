"""This project's TensorFlow operations in C++, compiled when they are first used."""
