"""The gradients, plans and simulations of other programs beside those of ckio."""
