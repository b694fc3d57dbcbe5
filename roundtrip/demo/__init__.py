"""The demo: three stateless instances handle one order. They share only a key, and each leg is served by a different
process.
"""
