"""Prompt-lookup speculation as pure policy: integers and floats in and out.

Nothing here knows a model, an array, a clock or a thread; the standard library is all it needs.
"""
