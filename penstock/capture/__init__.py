"""Capture: facts enter the log. Sources read them outside, the pump writes them to the log, each once and in order.

The main path: pump -> Source.read -> GatheredRows.add -> Writer.write -> Confirms.confirm.
"""
