"""Learning problems whose data are divided over clients, by name.

    import tff_adaptive_tasks as tasks
    task = tasks.load('digits')

Importing this package imports no TensorFlow; loading a task does.
"""

from tff_adaptive._utils import lazy_names

__getattr__, __dir__, __all__ = lazy_names.attach(__name__, __file__)
