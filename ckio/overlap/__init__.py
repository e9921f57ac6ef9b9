"""Transfers that are concurrent with the computation: rules that simulator and runner share."""
