"""Server and client optimizers for TFF, among them those of FedAdagrad, FedAdam and FedYogi."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
