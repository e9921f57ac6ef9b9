"""Transfers concurrent with the computation: the rules that simulator and runner share."""
