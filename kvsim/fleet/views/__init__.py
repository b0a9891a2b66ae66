"""Views that routers have of replicas: texts sent before, reported cache blocks, published
counts.
"""
