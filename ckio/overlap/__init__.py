"""Which transfers go on beside the computation: the rules that simulator and runner share."""
