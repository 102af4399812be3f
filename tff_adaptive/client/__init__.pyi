from .batching import Batching as Batching
