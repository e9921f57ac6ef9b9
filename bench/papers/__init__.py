"""Figures and statements of publications beside what ckio measures."""
