"""What is seen of a service: metrics for programs, a page for people, and advice.

In come figures as the service tells them, out go answers to HTTP. Read http first: it says who may see what.
"""
