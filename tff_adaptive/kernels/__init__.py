"""TensorFlow operations of this project's own, in C++; compiled where they are first used."""
