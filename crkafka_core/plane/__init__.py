"""The rules of the control plane, once, over typed rows (`crkafka_core.control`): each mutation is one function of one transaction."""
