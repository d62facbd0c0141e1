"""Parts that the benchmark scripts share.

They speak HTTP to servers and import nothing of surefoot; the standard library is enough.
"""
